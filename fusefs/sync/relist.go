package sync

import (
	"context"
	"errors"
	"io/fs"

	"berth"
	"berth/fusefs/index"
)

// relistSetting is above zero until all that Relist asks for is done.
const (
	relistSetting = "sync/relist"
	relistPage    = 256
)

// Relist has each directory that was listed be listed again in the background,
// also over a restart: after a power cut the index can be older than the bucket,
// even where nobody else writes to it. It is called before Start.
func (s *Syncer) Relist() error {
	return s.db.Update(func(b *index.Batch) error { b.PutSetting(relistSetting, 1); return nil })
}

// relist does it. Directories that are made meanwhile are looked at too, which
// does no harm.
func (s *Syncer) relist(ctx context.Context) error {
	if due, err := s.db.Setting(relistSetting); err != nil || due == 0 {
		return err
	}
	for after := index.Ino(0); ; {
		dirs, last, err := s.db.Dirs(after, relistPage)
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := s.relistDir(ctx, dir); err != nil {
				return err
			}
		}
		if len(dirs) < relistPage {
			break
		}
		after = last
	}
	return s.db.Update(func(b *index.Batch) error { b.PutSetting(relistSetting, 0); return nil })
}

// relistDir lists one directory, however long the store is away.
func (s *Syncer) relistDir(ctx context.Context, dir index.Ino) error {
	for tries := 0; ; tries++ {
		err := s.lists.do(ctx, s.ctx, dir, func(ctx context.Context) error { return s.list(ctx, dir, true) })
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, berth.ErrUnavailable):
			s.log.Warn("Cannot list a directory again", "ino", dir, "cause", err)
			return nil
		}
		s.failed(err)
		sleep(ctx, nil, backoff(tries, firstOutage, mostOutage))
	}
}

// Disown forgets the requests that were announced for an inode: its content here
// is not what they sent any more, so that one which arrived counts as if somebody
// else had sent it.
func (s *Syncer) Disown(ino index.Ino) error {
	n, err := s.db.Inode(ino)
	if err != nil {
		return err
	}
	names, err := s.wanted(&n)
	if err != nil {
		return err
	}
	for _, w := range names {
		r, ok, err := s.db.Remote(w.key)
		if err == nil && ok && r.Intent.Ino == ino && r.Intent.Gen != 0 {
			err = s.dropIntent(w.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
