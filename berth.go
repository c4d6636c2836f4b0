// Package berth is the vocabulary of Berth: ids, trees, views, changes and
// records. Every other package speaks in these terms; this one imports none
// of them.
//
// Terms. A workspace is a team and the top folder of the bucket. A chat is one
// conversation; it belongs to a member or to an API key's end user. A machine
// is the isolated container of a chat. A tree is a subtree of the bucket with
// one owner. A view is the set of trees that one chat's machine may see, and
// where. A slot is the host directory through which a view reaches a container.
package berth

import (
	"crypto/rand"
	"fmt"
	"io/fs"
)

// MaxID is the longest id in bytes.
const MaxID = 128

// An ID names one thing of berth in a single path segment: 1 to MaxID bytes of
// [A-Za-z0-9._-], not beginning with a dot. ParseID makes it; a value of this
// type that did not come from ParseID or a New function is a bug.
type ID string

// ReservedExpert is refused as the name of an expert, since it is the name of
// the team's directory in a member's workspace.
const ReservedExpert = "shared"

// DefaultExpert is the platform agent, used where a request names no expert.
const DefaultExpert ID = "profy"

// An IDError tells why a string is not an id. It matches fs.ErrInvalid.
type IDError struct {
	What string // what the id names, such as "workspace"
	ID   string // as given
	Why  string
}

func (e *IDError) Error() string {
	shown := e.ID
	if len(shown) > 64 {
		shown = shown[:64] + "..."
	}
	return fmt.Sprintf("invalid %s id %q: %s", e.What, shown, e.Why)
}

// Is makes errors.Is(err, fs.ErrInvalid) hold.
func (e *IDError) Is(target error) bool { return target == fs.ErrInvalid }

// ParseID checks s and returns it as an ID. What names the kind of id in the
// error, which is an *IDError.
func ParseID(what, s string) (ID, error) {
	switch {
	case s == "":
		return "", &IDError{what, s, "it is empty"}
	case len(s) > MaxID:
		return "", &IDError{what, s, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(s), MaxID)}
	case s[0] == '.':
		return "", &IDError{what, s, "it begins with a dot"}
	}
	for i := 0; i < len(s); i++ {
		if !idByte(s[i]) {
			return "", &IDError{what, s, "only letters, digits, '.', '_' and '-' are allowed"}
		}
	}
	return ID(s), nil
}

// ParseExpert is ParseID for an expert's name, which may not be "shared" either.
func ParseExpert(s string) (ID, error) {
	if s == ReservedExpert {
		return "", &IDError{"expert", s, "the name is reserved for the team's directory"}
	}
	return ParseID("expert", s)
}

func idByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

const lowerAlnum = "abcdefghijklmnopqrstuvwxyz0123456789"

// NewMachineID returns a fresh machine id: "i" and 20 random characters of
// [a-z0-9], the form that E2B's clients expect of a sandbox id.
func NewMachineID() ID { return ID("i" + randomLower(20)) }

// NewSlotID returns a fresh slot id: "s" and 12 random characters of [a-z0-9],
// short because it is part of a socket's path, which holds 107 bytes at most.
func NewSlotID() ID { return ID("s" + randomLower(12)) }

func randomLower(n int) string {
	out := make([]byte, n)
	var buf [1]byte
	for i := 0; i < n; {
		rand.Read(buf[:]) // never fails: crypto/rand ends the program instead
		// 252 is the largest multiple of 36 in a byte; above it the choice would be uneven.
		if buf[0] < 252 {
			out[i] = lowerAlnum[buf[0]%36]
			i++
		}
	}
	return string(out)
}
