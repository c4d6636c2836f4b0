package mounts

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth"
)

// A localCopy holds all records in memory and in one file, to which each change
// is appended as one line. The zero localCopy is not open.
type localCopy struct {
	entries  map[string]entry
	keys     []string // sorted
	complete bool     // everything in the store was read at some time

	file  *os.File
	name  string
	lines int // in the file
}

// An entry is one record of the local copy.
type entry struct {
	Version string
	ETag    string
	Value   json.RawMessage
}

func (e entry) record(key string) berth.Record {
	return berth.Record{Key: key, Version: e.Version, Value: e.Value}
}

// A copyLine is one line of the file: a record, its end, or the mark that the
// copy is complete.
type copyLine struct {
	Key      string          `json:"key,omitempty"`
	Version  string          `json:"version,omitempty"`
	ETag     string          `json:"etag,omitempty"`
	Value    json.RawMessage `json:"value,omitempty"`
	Gone     bool            `json:"gone,omitempty"`
	Complete bool            `json:"complete,omitempty"`
}

// open reads the file below dir and goes on with it. What cannot be read at its
// end, as after a power cut, is cut off, and the copy is not complete any more.
func (c *localCopy) open(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	c.name = filepath.Join(dir, "records.jsonl")
	c.entries = make(map[string]entry)
	data, err := os.ReadFile(c.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for text := range strings.Lines(string(data)) {
		var line copyLine
		if !strings.HasSuffix(text, "\n") || json.Unmarshal([]byte(text), &line) != nil {
			c.complete = false
			break
		}
		c.read(line)
	}
	for key := range c.entries {
		c.keys = append(c.keys, key)
	}
	slices.Sort(c.keys)
	return c.compact()
}

func (c *localCopy) read(line copyLine) {
	switch {
	case line.Complete:
		c.complete = true
	case line.Gone:
		delete(c.entries, line.Key)
	case line.Key != "":
		c.entries[line.Key] = entry{line.Version, line.ETag, line.Value}
	}
}

// compact writes the file anew with what is still true.
func (c *localCopy) compact() error {
	temp := c.name + ".new"
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	lines, err := c.writeAll(file)
	if err == nil {
		err = os.Rename(temp, c.name)
	}
	if err != nil {
		file.Close()
		return err
	}
	if c.file != nil {
		c.file.Close()
	}
	c.file, c.lines = file, lines
	return nil
}

func (c *localCopy) writeAll(w io.Writer) (lines int, err error) {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	for _, key := range c.keys {
		e := c.entries[key]
		if err := enc.Encode(copyLine{Key: key, Version: e.Version, ETag: e.ETag, Value: e.Value}); err != nil {
			return 0, err
		}
	}
	if c.complete {
		if err := enc.Encode(copyLine{Complete: true}); err != nil {
			return 0, err
		}
	}
	return len(c.keys) + 1, buf.Flush()
}

// set changes or removes (nil) a record, in memory whatever happens to the file.
func (c *localCopy) set(key string, e *entry) error {
	at, found := slices.BinarySearch(c.keys, key)
	if e == nil {
		if !found {
			return nil
		}
		c.keys = slices.Delete(c.keys, at, at+1)
		delete(c.entries, key)
		return c.append(copyLine{Key: key, Gone: true})
	}
	if !found {
		c.keys = slices.Insert(c.keys, at, key)
	}
	c.entries[key] = *e
	return c.append(copyLine{Key: key, Version: e.Version, ETag: e.ETag, Value: e.Value})
}

// setComplete notes that everything in the store was read.
func (c *localCopy) setComplete() error {
	if c.complete {
		return nil
	}
	c.complete = true
	return c.append(copyLine{Complete: true})
}

func (c *localCopy) append(line copyLine) error {
	if c.lines > 4*len(c.keys)+1000 {
		return c.compact()
	}
	data, err := encode(line)
	if err != nil {
		return err
	}
	c.lines++
	if _, err := c.file.Write(data); err != nil {
		// Half a line may be there; the file is made anew, if that can be.
		return errors.Join(err, c.compact())
	}
	return nil
}

// keysFrom returns the keys that begin with prefix and are behind after.
func (c *localCopy) keysFrom(prefix, after string) []string {
	from, found := slices.BinarySearch(c.keys, max(prefix, after))
	if found && c.keys[from] == after {
		from++
	}
	to := from
	for to < len(c.keys) && strings.HasPrefix(c.keys[to], prefix) {
		to++
	}
	return c.keys[from:to]
}

func (c *localCopy) close() error {
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("cannot close the local copy of records: %w", err)
	}
	return nil
}
