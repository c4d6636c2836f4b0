package berth

import (
	"fmt"
	"io/fs"
	"strings"
)

// A TreeKind says what a tree is for.
type TreeKind uint8

// The four kinds of tree. The zero TreeKind is not a tree.
const (
	MemberDisk  TreeKind = iota + 1 // a member's whole disk
	SharedDir                       // a workspace's shared directory
	SessionRoot                     // the files of one chat of an API key's end user
	MachineHome                     // a machine's home
)

// A Tree is a subtree of the bucket with one owner. Trees are comparable; make
// them with the functions below, whose arguments are ids.
type Tree struct {
	Kind      TreeKind
	Workspace ID
	Owner     ID // the member, end user or machine; empty for SharedDir
	Chat      ID // for SessionRoot only
}

// MemberTree is the disk of one member.
func MemberTree(workspace, user ID) Tree {
	return Tree{Kind: MemberDisk, Workspace: workspace, Owner: user}
}

// SharedTree is the directory that all members of a workspace share.
func SharedTree(workspace ID) Tree { return Tree{Kind: SharedDir, Workspace: workspace} }

// SessionTree is the session root of one chat of an API key's end user.
func SessionTree(workspace, endUser, chat ID) Tree {
	return Tree{Kind: SessionRoot, Workspace: workspace, Owner: endUser, Chat: chat}
}

// MachineTree is the home of a machine.
func MachineTree(workspace, machine ID) Tree {
	return Tree{Kind: MachineHome, Workspace: workspace, Owner: machine}
}

// String returns the tree's place in the bucket, without a slash at the end,
// such as "acme/members/ann". ParseTree reads it back.
func (t Tree) String() string {
	switch t.Kind {
	case MemberDisk:
		return string(t.Workspace + "/members/" + t.Owner)
	case SharedDir:
		return string(t.Workspace + "/shared")
	case SessionRoot:
		return string(t.Workspace + "/end_users/" + t.Owner + "/session-roots/" + t.Chat)
	case MachineHome:
		return string(t.Workspace + "/machines/" + t.Owner)
	}
	return "(no tree)"
}

// Prefix returns what every key of the tree begins with: String and a slash.
func (t Tree) Prefix() string { return t.String() + "/" }

// ParseTree reads what String returns. The error matches fs.ErrInvalid.
func ParseTree(s string) (Tree, error) {
	parts := strings.Split(s, "/")
	var t Tree
	switch {
	case len(parts) == 2 && parts[1] == "shared":
		t = Tree{Kind: SharedDir, Workspace: ID(parts[0])}
	case len(parts) == 3 && parts[1] == "members":
		t = Tree{Kind: MemberDisk, Workspace: ID(parts[0]), Owner: ID(parts[2])}
	case len(parts) == 3 && parts[1] == "machines":
		t = Tree{Kind: MachineHome, Workspace: ID(parts[0]), Owner: ID(parts[2])}
	case len(parts) == 5 && parts[1] == "end_users" && parts[3] == "session-roots":
		t = Tree{Kind: SessionRoot, Workspace: ID(parts[0]), Owner: ID(parts[2]), Chat: ID(parts[4])}
	default:
		return Tree{}, fmt.Errorf("cannot parse tree %q: it is none of WORKSPACE/shared, WORKSPACE/members/USER, "+
			"WORKSPACE/machines/MACHINE, WORKSPACE/end_users/END_USER/session-roots/CHAT: %w", s, fs.ErrInvalid)
	}
	return t, t.check()
}

// check returns an error if an id of the tree is not one.
func (t Tree) check() error {
	if _, err := ParseID("workspace", string(t.Workspace)); err != nil {
		return err
	}
	owner := map[TreeKind]string{MemberDisk: "member", SessionRoot: "end user", MachineHome: "machine"}[t.Kind]
	if owner != "" {
		if _, err := ParseID(owner, string(t.Owner)); err != nil {
			return err
		}
	}
	if t.Kind == SessionRoot {
		if _, err := ParseID("chat", string(t.Chat)); err != nil {
			return err
		}
	}
	return nil
}
