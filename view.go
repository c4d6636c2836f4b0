package berth

import (
	"errors"
	"fmt"
	"io/fs"
)

// Home is where a machine keeps its home, and Workspace where the trees of a
// view are, both inside the machine.
const (
	Home      = "/home/user"
	Workspace = Home + "/workspace"
	Project   = Home + "/project"
)

// A View names the trees one chat's machine may see. Exactly one of User and
// EndUser is set: User for a member's chat, EndUser for an API key's.
type View struct {
	Workspace ID   `json:"workspace"`
	Machine   ID   `json:"machine"`
	Chat      ID   `json:"chat"`
	User      ID   `json:"user,omitempty"`
	EndUser   ID   `json:"end_user,omitempty"`
	Experts   []ID `json:"experts"` // each has its working directory
}

// A Place is one tree at one path of a view.
type Place struct {
	Path string // below Home, without a slash at either end; "" is Home itself
	Tree Tree
}

// Check parses every id of the view again, for a view that came over a socket.
func (v View) Check() error {
	if (v.User == "") == (v.EndUser == "") {
		return fmt.Errorf("invalid view of machine %q: exactly one of user and end_user must be set: %w", v.Machine, fs.ErrInvalid)
	}
	_, err1 := ParseID("workspace", string(v.Workspace))
	_, err2 := ParseID("machine", string(v.Machine))
	_, err3 := ParseID("chat", string(v.Chat))
	_, err4 := ParseID("user", string(v.User+v.EndUser))
	err := errors.Join(err1, err2, err3, err4)
	for _, e := range v.Experts {
		_, bad := ParseExpert(string(e))
		err = errors.Join(err, bad)
	}
	return err
}

// Places returns what the machine sees, outer before inner: the order to mount in.
func (v View) Places() []Place {
	places := []Place{{"", MachineTree(v.Workspace, v.Machine)}}
	if v.User != "" {
		return append(places,
			Place{"workspace", MemberTree(v.Workspace, v.User)},
			Place{"workspace/" + ReservedExpert, SharedTree(v.Workspace)})
	}
	for _, e := range v.Experts {
		places = append(places, Place{fmt.Sprintf("workspace/%s/%s", e, v.Chat), SessionTree(v.Workspace, v.EndUser, v.Chat)})
	}
	return places
}

// MountPoints returns, for each tree of the view, the directories below its
// root that other trees (or the project template) are mounted on. They and
// their ancestors are synthetic: read-only, empty, never renamed or removed.
func (v View) MountPoints() map[Tree][]string {
	home := MachineTree(v.Workspace, v.Machine)
	points := map[Tree][]string{home: {"project", "workspace"}}
	if v.User != "" {
		points[MemberTree(v.Workspace, v.User)] = []string{ReservedExpert}
		return points
	}
	for _, e := range v.Experts {
		points[home] = append(points[home], fmt.Sprintf("workspace/%s/%s", e, v.Chat))
	}
	return points
}

// Workdir is the working directory of an expert's tools inside the machine.
func (v View) Workdir(expert ID) string {
	return fmt.Sprintf("%s/%s/%s", Workspace, expert, v.Chat)
}

// Files returns the tree that holds the expert's working directory, and the
// directory's path below the tree's root ("" for the root).
func (v View) Files(expert ID) (Tree, string) {
	if v.User != "" {
		return MemberTree(v.Workspace, v.User), fmt.Sprintf("%s/%s", expert, v.Chat)
	}
	return SessionTree(v.Workspace, v.EndUser, v.Chat), ""
}
