package fusefs

import (
	"context"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"berth/fusefs/index"
	bucketsync "berth/fusefs/sync"
)

// errRemote says that the content has to be fetched first.
var errRemote = errors.New("the content is only in the bucket")

// Handles of files: what has to be known at release is the inode, which the
// kernel tells, and this.
const (
	readHandle  = 1
	writeHandle = 2
)

func writable(flags uint32) bool { return flags&syscall.O_ACCMODE != syscall.O_RDONLY }

// A need is what the content of a file is wanted for.
type need int

const (
	needAll  need = iota // all of it, to be changed
	needRead             // to be read: pieces will do
	needNone             // it is thrown away
)

// lockLocal locks an openFile whose content is here as far as it is needed,
// fetching it first. On an error it is not locked.
func (f *FS) lockLocal(c caller, o *openFile, what need) error {
	for digested := false; ; {
		o.mu.Lock()
		n, err := f.inode(o.ino)
		ready := !n.Remote || o.r != nil || what == needNone || what == needRead && o.blocks != nil
		if err == nil && ready && o.blocks != nil && !n.Remote {
			err = f.leaveBlocksLocked(o)
		}
		first := what == needAll && !o.marked && !digested && n.Size >= bucketsync.Large
		if err == nil && ready && !first {
			return nil
		}
		o.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ready:
			digested, err = true, f.digest(c, o.ino)
		case what == needRead && n.Size > bucketsync.Large:
			var ok bool
			if ok, err = f.openBlocks(c, o, n.Tree); ok {
				return nil
			}
		default:
			if err = f.takeSpace(c, o.ino, n.Size); err == nil {
				err = f.store(c, "fetch", o.ino, func(ctx context.Context) error { return f.sync.Fetch(ctx, o.ino) })
			}
		}
		if err != nil {
			return err
		}
	}
}

// digest prepares a large file for being changed and uploaded in part. That it
// cannot be is no reason not to change it.
func (f *FS) digest(c caller, ino index.Ino) error {
	err := f.store(c, "digest", ino, func(ctx context.Context) error { return f.sync.Digest(ctx, ino) })
	if err == nil || errors.Is(err, errKilled) {
		return err
	}
	f.log.Warn("Cannot digest a file, a change of it is uploaded whole", "inode", ino, "cause", err)
	return nil
}

// Open serves open(2) of a regular file.
func (r *rawFS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f, ino := r.fs, index.Ino(in.NodeId)
	err := f.openHandle(callerOf(cancel, &in.InHeader), ino, in.Flags, out)
	if err == nil && in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		err = f.dropPrivileges(ino)
	}
	return f.statusOf("open", in.NodeId, err)
}

func (f *FS) openHandle(c caller, ino index.Ino, flags uint32, out *fuse.OpenOut) error {
	n, err := f.inode(ino)
	if err != nil {
		return err
	}
	if !n.IsFile() {
		return syscall.ENXIO
	}
	o := f.opens.get(ino)
	trunc := flags&syscall.O_TRUNC != 0 && writable(flags)
	fresh, err := f.addHandle(c, o, n.Tree, writable(flags), trunc, out)
	if err == errRemote { // its content was lost, and is to be fetched again
		fresh, err = f.addHandle(c, o, n.Tree, writable(flags), trunc, out)
	}
	if err != nil {
		f.opens.put(o, 1)
		return err
	}
	if fresh {
		// The kernel may have attributes that it thinks good for long.
		f.notify.attrs(ino)
	}
	return nil
}

// addHandle counts a handle, whose use of o the caller has counted already.
// fresh says that the inode has become one that is open for writing.
func (f *FS) addHandle(c caller, o *openFile, tree index.Ino, write, trunc bool, out *fuse.OpenOut) (fresh bool, err error) {
	what := needRead
	switch {
	case trunc:
		what = needNone
	case write:
		what = needAll
	}
	if err := f.lockLocal(c, o, what); err != nil {
		return false, err
	}
	defer o.mu.Unlock()
	if err := f.takeLocked(o, tree); err != nil {
		return false, err
	}
	if write {
		fresh = !o.marked || o.pace.told
		o.pace.told = false
		if err := f.beginWriteLocked(o, trunc); err != nil {
			f.untakeLocked(o)
			return false, err
		}
	}
	if err := f.openLocked(o, write); err != nil {
		f.dropIfIdleLocked(o)
		return false, err
	}
	f.countLocked(o, write, out)
	return fresh, nil
}

// countLocked counts a handle of a file that is open and fills in the answer.
func (f *FS) countLocked(o *openFile, write bool, out *fuse.OpenOut) {
	out.Fh, out.OpenFlags = readHandle, fuse.FOPEN_KEEP_CACHE
	if write {
		out.Fh = writeHandle
		o.writers++
	} else {
		o.readers++
	}
	switch {
	case o.through:
		out.OpenFlags, out.BackingID = fuse.FOPEN_PASSTHROUGH, o.backing
	case f.passthrough.Load():
		out.OpenFlags = 0 // what the kernel has cached may be from before it wrote past its cache
	}
}

// dropIfIdleLocked closes the content file, or settles, when no handle is left.
func (f *FS) dropIfIdleLocked(o *openFile) {
	switch {
	case o.writers == 0 && o.marked:
		f.settleSoonLocked(o)
	case !o.inUseLocked():
		f.closeLocked(o)
	}
}

// Release ends a handle. The kernel does not wait for it.
func (r *rawFS) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) {
	f := r.fs
	o := f.opens.peek(index.Ino(in.NodeId))
	if o == nil {
		return // closed with the rest by Close
	}
	defer f.opens.put(o, 2)
	o.mu.Lock()
	defer o.mu.Unlock()
	if in.Fh == writeHandle {
		o.writers--
	} else {
		o.readers--
	}
	f.dropIfIdleLocked(o)
}

// Read serves what passthrough does not.
func (r *rawFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f := r.fs
	o := f.opens.peek(index.Ino(in.NodeId))
	if o == nil {
		return nil, fuse.EBADF
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	file, blocks := o.r, o.blocks
	o.mu.Unlock()
	if blocks != nil {
		n, err := f.readBlocks(callerOf(cancel, &in.InHeader), o, blocks, buf, int64(in.Offset))
		return fuse.ReadResultData(buf[:n]), f.statusOf("read", in.NodeId, err)
	}
	if file == nil {
		return nil, fuse.EBADF
	}
	// The handle that reads keeps the descriptor open until its release.
	n, err := pread(int(file.Fd()), buf, int64(in.Offset))
	if err != nil {
		return nil, f.statusOf("read", in.NodeId, err)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func pread(fd int, buf []byte, off int64) (int, error) {
	done := 0
	for done < len(buf) {
		n, err := unix.Pread(fd, buf[done:], off+int64(done))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return done, err
		case n == 0:
			return done, nil
		default:
			done += n
		}
	}
	return done, nil
}

// Writev serves what passthrough does not.
func (r *rawFS) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	f := r.fs
	o := f.opens.peek(index.Ino(in.NodeId))
	if o == nil {
		return 0, fuse.EBADF
	}
	defer f.opens.put(o, 1)
	o.mu.Lock()
	w, err := f.writableLocked(o)
	o.mu.Unlock()
	if err == nil && in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		err = f.dropPrivileges(o.ino)
	}
	if err != nil {
		return 0, f.statusOf("write", in.NodeId, err)
	}
	if err := f.takeSpace(callerOf(cancel, &in.InHeader), o.ino, int64(in.Size)); err != nil {
		return 0, f.statusOf("write", in.NodeId, err)
	}
	data, err = f.grantWrite(o, int64(in.Offset), data)
	if err != nil {
		return 0, f.statusOf("write", in.NodeId, err)
	}
	// The handle that writes keeps the descriptor open until its release.
	total := 0
	for _, part := range data {
		n, err := pwrite(int(w.Fd()), part, int64(in.Offset)+int64(total))
		total += n
		if err != nil {
			o.mu.Lock()
			f.recountLocked(o)
			o.mu.Unlock()
			if total > 0 {
				break
			}
			return 0, f.statusOf("write", in.NodeId, err)
		}
	}
	return uint32(total), fuse.OK
}

func pwrite(fd int, buf []byte, off int64) (int, error) {
	done := 0
	for done < len(buf) {
		n, err := unix.Pwrite(fd, buf[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
