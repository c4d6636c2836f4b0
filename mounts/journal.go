package mounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth"
)

// SlotInfo tells of one slot.
type SlotInfo struct {
	Slot  berth.ID    `json:"slot"`
	Since time.Time   `json:"since"`          // when it was made
	View  *berth.View `json:"view,omitempty"` // nil = not claimed yet
}

func (h *Host) journalFile(id berth.ID) string {
	return filepath.Join(h.opts.State, journalName, string(id)+".json")
}

// writeJournal replaces what is written down of a slot. It survives the death of
// the process; no mount survives a power cut, so nothing is synced.
func (h *Host) writeJournal(info SlotInfo) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if err := replaceFile(h.journalFile(info.Slot), data); err != nil {
		return fmt.Errorf("cannot write down slot %s: %w", info.Slot, err)
	}
	return nil
}

// replaceFile writes a file anew under its name, in one step.
func replaceFile(name string, data []byte) error {
	temp := name + ".new"
	err := os.WriteFile(temp, data, 0o600)
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// readJournal returns what is written down, by slot. Files that say nothing
// sensible are removed: their slots count as not written down.
func (h *Host) readJournal() (map[berth.ID]SlotInfo, error) {
	dir := filepath.Join(h.opts.State, journalName)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read slots: %w", err)
	}
	infos := make(map[berth.ID]SlotInfo, len(entries))
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		info, err := readInfo(name, strings.TrimSuffix(e.Name(), ".json"))
		if err != nil {
			h.log.Warn("Cannot read a slot's journal, it is dropped", "file", name, "cause", err)
			if err := os.Remove(name); err != nil {
				return nil, fmt.Errorf("cannot read slots: %w", err)
			}
			continue
		}
		infos[info.Slot] = info
	}
	return infos, nil
}

func readInfo(name, slot string) (SlotInfo, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return SlotInfo{}, err
	}
	var info SlotInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return SlotInfo{}, err
	}
	if string(info.Slot) != slot {
		return SlotInfo{}, fmt.Errorf("it is of slot %q: %w", info.Slot, fs.ErrInvalid)
	}
	if _, err := berth.ParseID("slot", slot); err != nil {
		return SlotInfo{}, err
	}
	if info.View != nil {
		return info, info.View.Check()
	}
	return info, nil
}

func (h *Host) removeJournal(id berth.ID) error {
	if err := os.Remove(h.journalFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot strike out slot %s: %w", id, err)
	}
	return nil
}
