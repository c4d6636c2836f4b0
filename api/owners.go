package api

import (
	"context"
	"sync"

	"berth"
)

// ownerCache remembers which key owns a chat, for the event streams of keys,
// which look at every change of the workspace.
type ownerCache struct {
	mu     sync.Mutex
	owners map[[2]berth.ID]berth.ID // (workspace, chat) to key
}

// maxOwners bounds the cache; beyond it begins anew.
const maxOwners = 100_000

func newOwnerCache() *ownerCache { return &ownerCache{owners: make(map[[2]berth.ID]berth.ID)} }

func (o *ownerCache) forget(ws, chat berth.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owners, [2]berth.ID{ws, chat})
}

// keyOf returns the key that owns a chat, or "".
func (s *Server) keyOf(ctx context.Context, ws, chat berth.ID) berth.ID {
	o, at := s.owners, [2]berth.ID{ws, chat}
	o.mu.Lock()
	key, ok := o.owners[at]
	o.mu.Unlock()
	if ok {
		return key
	}
	rec, _, err := read[chatRecord](ctx, s.records, chatPrefix(ws, principal{kind: kindKey})+string(chat))
	if err != nil || rec.Deleting {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.owners) >= maxOwners {
		clear(o.owners)
	}
	o.owners[at] = rec.Key
	return rec.Key
}
