package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// A route is one row of the route table.
type route struct {
	method, path string
	endpoint
}

// An endpoint is a handler and the principals it serves. The functions below
// make endpoints: each takes a handler whose second argument is of the type
// that only the matching check can make.
type endpoint struct {
	access string // for the OpenAPI document: public, operator, admin, member, owner, staff or any
	serve  echo.HandlerFunc
}

type (
	operator struct{ principal } // the installation
	admin    struct{ principal } // one workspace
	member   struct{ principal } // of one workspace
	owner    struct{ principal } // a member or an API key: who can own chats
)

func (s *Server) operators(h func(echo.Context, operator) error) endpoint {
	return endpoint{"operator", s.as(func(c echo.Context, p principal) error { return h(c, operator{p}) }, kindOperator)}
}

func (s *Server) admins(h func(echo.Context, admin) error) endpoint {
	return endpoint{"admin", s.as(func(c echo.Context, p principal) error { return h(c, admin{p}) }, kindAdmin)}
}

func (s *Server) members(h func(echo.Context, member) error) endpoint {
	return endpoint{"member", s.as(func(c echo.Context, p principal) error { return h(c, member{p}) }, kindMember)}
}

func (s *Server) chatOwners(h func(echo.Context, owner) error) endpoint {
	return endpoint{"owner", s.as(func(c echo.Context, p principal) error { return h(c, owner{p}) }, kindMember, kindKey)}
}

func (s *Server) staff(h func(echo.Context, principal) error) endpoint {
	return endpoint{"staff", s.as(h, kindOperator, kindAdmin)}
}

func (s *Server) anyone(h func(echo.Context, principal) error) endpoint {
	return endpoint{"any", s.as(h, kindOperator, kindAdmin, kindMember, kindKey)}
}

func public(h echo.HandlerFunc) endpoint { return endpoint{"public", h} }

// routes is the route table.
func (s *Server) routes() []route {
	const get, head, put, post, del = http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete
	table := []route{
		{get, "/v1/health", public(s.getHealth)},
		{get, "/v1/openapi.yaml", public(s.getOpenAPI)},
		{get, "/v1/me", s.anyone(s.getMe)},
		{get, "/v1/status", s.staff(s.getStatus)},
		{put, "/v1/workspaces/:ws", s.operators(s.putWorkspace)},
		{get, "/v1/members", s.admins(s.listMembers)},
		{put, "/v1/members/:user", s.admins(s.putMember)},
		{del, "/v1/members/:user", s.admins(s.deleteMember)},
		{get, "/v1/keys", s.admins(s.listKeys)},
		{post, "/v1/keys", s.admins(s.createKey)},
		{del, "/v1/keys/:id", s.admins(s.revokeKey)},
		{get, "/v1/chats", s.chatOwners(s.listChats)},
		{put, "/v1/chats/:chat", s.chatOwners(s.putChat)},
		{get, "/v1/chats/:chat", s.chatOwners(s.getChat)},
		{del, "/v1/chats/:chat", s.chatOwners(s.deleteChat)},
		{post, "/v1/chats/:chat/tools/:tool", s.chatOwners(s.callTool)},
		{post, "/v1/chats/:chat/machine/stop", s.chatOwners(s.stopMachine)},
		{post, "/v1/chats/:chat/machine/wake", s.chatOwners(s.wakeMachine)},
		{del, "/v1/chats/:chat/machine", s.chatOwners(s.destroyMachine)},
		{get, "/v1/chats/:chat/events", s.chatOwners(s.chatEvents)},
		{get, "/v1/events", s.chatOwners(s.events)},
		{get, "/v1/diff", s.chatOwners(s.getDiff)},
		{get, "/v1/changes", s.chatOwners(s.getChanges)},
		{post, "/v1/signin-links", s.members(s.createSignInLink)},
		{post, "/v1/signout", s.members(s.signOut)},
		{get, "/signin", public(s.signIn)},
		{get, "/*", public(s.serveApp)},
		{head, "/*", public(s.serveApp)},
	}
	for _, area := range []string{"/v1/files/me", "/v1/files/shared", "/v1/files/chats/:chat"} {
		for _, path := range []string{area, area + "/*"} {
			table = append(table,
				route{get, path, s.chatOwners(s.getFile)},
				route{head, path, s.chatOwners(s.getFile)},
				route{put, path, s.chatOwners(s.putFile)},
				route{del, path, s.chatOwners(s.deleteFile)},
				route{post, path, s.chatOwners(s.moveFile)})
		}
	}
	return table
}
