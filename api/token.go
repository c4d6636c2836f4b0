package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// A kind says what a principal is. It is the role in its token, too.
type kind string

const (
	kindOperator kind = "operator"
	kindAdmin    kind = "admin"
	kindMember   kind = "member"
	kindKey      kind = "key"
)

// NewOperatorToken returns a fresh token for an operator.
func NewOperatorToken() string { return newToken(kindOperator) }

// NewAdminToken returns a fresh token for a workspace's admin.
func NewAdminToken() string { return newToken(kindAdmin) }

// NewMemberToken returns a fresh token for a member.
func NewMemberToken() string { return newToken(kindMember) }

// newToken returns "berth_", the role, "_" and 43 characters that stand for 256
// random bits.
func newToken(k kind) string {
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	return "berth_" + string(k) + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
}

// NewAPIKey returns a fresh API key: "e2b_" and 40 hexadecimal digits, the form
// that E2B's clients check.
func NewAPIKey() string {
	var secret [20]byte
	rand.Read(secret[:])
	return "e2b_" + hex.EncodeToString(secret[:])
}

// HashToken returns the SHA-256 of a token in hexadecimal: all that is stored
// of it.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// The bounds of the secret part of a token: tokens that were made elsewhere, by
// the same rules, may be a little shorter or longer.
const (
	minSecret = 32
	maxSecret = 128
	base64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// tokenKind tells from its form what a token is for. Anything that has no such
// form is refused without a look at the records.
func tokenKind(token string) (kind, bool) {
	if digits, ok := strings.CutPrefix(token, "e2b_"); ok {
		return kindKey, len(digits) >= minSecret && len(digits) <= maxSecret && strings.Trim(digits, "0123456789abcdef") == ""
	}
	for _, k := range []kind{kindOperator, kindAdmin, kindMember} {
		if secret, ok := strings.CutPrefix(token, "berth_"+string(k)+"_"); ok {
			return k, len(secret) >= minSecret && len(secret) <= maxSecret && strings.Trim(secret, base64URL) == ""
		}
	}
	return "", false
}
