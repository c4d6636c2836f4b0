package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth"
)

// A Beginning is what an installation starts with: an operator, one workspace
// with its admin, a member, and an API key. The tokens are those that the New
// functions of this package make.
type Beginning struct {
	Workspace     berth.ID
	User          berth.ID
	KeyID         berth.ID
	OperatorToken string
	AdminToken    string
	MemberToken   string
	APIKey        string
}

// Begin makes the records of b. Once it has succeeded it does nothing any more,
// so that what was revoked or removed since stays so. When it was interrupted
// it goes on; a record that exists is left as it is.
func Begin(ctx context.Context, r berth.Records, b Beginning, now time.Time) error {
	operator := tokenKey(HashToken(b.OperatorToken))
	// The operator's token is made last: it tells that all is there.
	if _, err := r.Get(ctx, operator); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	now = now.UTC()
	admin, member, key := HashToken(b.AdminToken), HashToken(b.MemberToken), HashToken(b.APIKey)
	for _, rec := range []struct {
		key   string
		value any
	}{
		{workspaceKey(b.Workspace), workspaceRecord{Workspace: b.Workspace, Created: now, Token: admin}},
		{tokenKey(admin), tokenRecord{Kind: kindAdmin, Workspace: b.Workspace}},
		{memberKey(b.Workspace, b.User), memberRecord{Workspace: b.Workspace, User: b.User, Created: now, Token: member}},
		{tokenKey(member), tokenRecord{Kind: kindMember, Workspace: b.Workspace, User: b.User}},
		{keyKey(b.Workspace, b.KeyID), keyRecord{Workspace: b.Workspace, ID: b.KeyID, Label: "first", Created: now, Token: key}},
		{tokenKey(key), tokenRecord{Kind: kindKey, Workspace: b.Workspace, Key: b.KeyID}},
		{operator, tokenRecord{Kind: kindOperator}},
	} {
		value, err := json.Marshal(rec.value)
		if err != nil {
			return fmt.Errorf("cannot encode record %s: %w", rec.key, err)
		}
		_, err = r.Put(ctx, berth.Record{Key: rec.key, Value: value})
		if err != nil && !errors.Is(err, berth.ErrConflict) {
			return fmt.Errorf("cannot make record %s: %w", rec.key, err)
		}
	}
	return nil
}
