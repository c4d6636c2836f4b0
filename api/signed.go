package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth"
)

// A ticket is what sign-in links and cookies carry: who, until when, and the
// nonce that names the sign-in. It is signed, not secret.
type ticket struct {
	Workspace berth.ID `json:"ws"`
	User      berth.ID `json:"user"`
	Role      kind     `json:"role"` // always member
	Issued    int64    `json:"iat"`  // Unix milliseconds
	Expires   int64    `json:"exp"`  // Unix seconds
	Nonce     berth.ID `json:"nonce"`
}

// The purposes of tickets. A ticket signed for one is no good for the other.
const (
	forSignIn  = "berth sign-in link 1"
	forSession = "berth session 1"
)

// maxTicket bounds what is looked at; the longest ids make about 450 bytes.
const maxTicket = 1024

// SignInLinkLife is how long a sign-in link is good for.
const SignInLinkLife = 10 * time.Minute

// MintSignIn returns a token for the link /signin?t=TOKEN, with which the member
// can sign in once within SignInLinkLife.
func MintSignIn(secret []byte, workspace, user berth.ID, now time.Time) string {
	return signTicket(secret, forSignIn, ticket{
		Workspace: workspace, User: user, Role: kindMember,
		Issued: now.UnixMilli(), Expires: now.Add(SignInLinkLife).Unix(), Nonce: newNonce(),
	})
}

func newNonce() berth.ID { return berth.ID(strings.ToLower(rand.Text())) }

// signTicket returns base64url(JSON) "." base64url(HMAC-SHA256).
func signTicket(secret []byte, purpose string, t ticket) string {
	body, err := json.Marshal(t)
	if err != nil {
		panic("BUG: cannot encode a ticket: " + err.Error())
	}
	text := base64.RawURLEncoding.EncodeToString(body)
	return text + "." + base64.RawURLEncoding.EncodeToString(ticketMAC(secret, purpose, text))
}

func ticketMAC(secret []byte, purpose, text string) []byte {
	key := hmac.New(sha256.New, secret)
	key.Write([]byte(purpose))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// openTicket checks a token's signature and time and returns the ticket in it.
// Nothing of the token is decoded before its signature has been checked.
func openTicket(secret []byte, purpose, token string, now time.Time) (ticket, error) {
	var t ticket
	text, mac, ok := strings.Cut(token, ".")
	if !ok || len(token) > maxTicket {
		return t, errors.New("it is not a signed ticket")
	}
	sum, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(sum, ticketMAC(secret, purpose, text)) {
		return t, errors.New("its signature is wrong")
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return t, errors.New("it is not a signed ticket")
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return t, errors.New("it is not a signed ticket")
	}
	for what, id := range map[string]berth.ID{"workspace": t.Workspace, "user": t.User, "nonce": t.Nonce} {
		if _, err := berth.ParseID(what, string(id)); err != nil {
			return t, err
		}
	}
	if t.Role != kindMember {
		return t, fmt.Errorf("the role %q cannot sign in", t.Role)
	}
	if now.Unix() >= t.Expires {
		return t, errors.New("it has expired")
	}
	return t, nil
}
