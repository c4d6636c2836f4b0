package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	maxLogFile = 16 << 20 // a log that grows beyond is kept once as NAME.log.1
	maxLogLine = 64 << 10 // what follows on a longer line is another line
	tailLines  = 12       // of the end of the log in an error
)

// A childLog takes what a child process writes: it appends it to the child's
// log file, repeats warnings and errors to the logger, and remembers the end.
type childLog struct {
	name   string
	path   string
	logger *slog.Logger

	mu      sync.Mutex // protects what follows
	file    *os.File
	size    int64
	partial []byte   // of the last line
	tail    []string // the last lines that are no log entries of level info
}

func openChildLog(dir, name string, logger *slog.Logger) (*childLog, error) {
	l := &childLog{name: name, path: filepath.Join(dir, name+".log"), logger: logger}
	return l, l.openLocked()
}

func (l *childLog) openLocked() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("cannot open log: %w", err)
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write takes bytes of the child's output. It never fails: a full disk must
// not block or end the child.
func (l *childLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		if end < 0 {
			if len(l.partial) < maxLogLine {
				return len(p), nil
			}
			end = maxLogLine - 1
		}
		line := strings.TrimSuffix(string(l.partial[:end+1]), "\n")
		l.partial = append(l.partial[:0], l.partial[end+1:]...)
		l.lineLocked(line)
	}
}

// Close closes the file; the tail stays.
func (l *childLog) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.lineLocked(string(l.partial))
		l.partial = nil
	}
	l.file.Close()
}

// Tail returns the end of the log for an error message: empty, or lines that
// each begin with a line break.
func (l *childLog) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tail) == 0 {
		return ""
	}
	return "\n    " + strings.Join(l.tail, "\n    ") + "\n    (more in " + l.path + ")"
}

func (l *childLog) lineLocked(line string) {
	if l.size > maxLogFile {
		l.rotateLocked()
	}
	n, _ := l.file.WriteString(line + "\n")
	l.size += int64(n)

	var entry map[string]any
	level := slog.LevelWarn // what is no log entry is a panic, or the cause of the end
	if json.Unmarshal([]byte(line), &entry) == nil {
		name, _ := entry["level"].(string)
		if level.UnmarshalText([]byte(name)) != nil {
			level = slog.LevelInfo
		}
	}
	if level < slog.LevelWarn {
		return
	}
	text := line
	if entry != nil {
		text = entryText(entry)
	}
	l.tail = append(l.tail, text)
	if len(l.tail) > tailLines {
		l.tail = l.tail[1:]
	}
	if entry != nil {
		l.logger.Log(context.Background(), level, "A process reports", "process", l.name, "report", text)
	}
}

func (l *childLog) rotateLocked() {
	l.file.Close()
	os.Rename(l.path, l.path+".1")
	if err := l.openLocked(); err != nil {
		// The closed file refuses further lines, which is all that is lost.
		l.logger.Error("Cannot rotate log", "cause", err)
		l.size = 0
	}
}

// entryText writes a log entry for a person: the message and its values.
func entryText(entry map[string]any) string {
	var b strings.Builder
	fmt.Fprint(&b, entry["msg"])
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if key == "time" || key == "level" || key == "msg" {
			continue
		}
		fmt.Fprintf(&b, " %s=%v", key, entry[key])
	}
	return b.String()
}
