package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"berth"
)

// recordPrefix begins the keys of machine records.
const recordPrefix = "machines/"

// record is the value of a machine's record. A record in state running names
// the slot that was claimed; only the installation that wrote it may judge
// whether the machine really runs.
type record struct {
	View         berth.View `json:"view"`
	State        State      `json:"state"`
	Reason       string     `json:"reason,omitempty"`
	Image        string     `json:"image,omitempty"`
	Installation string     `json:"installation,omitempty"`
	Slot         berth.ID   `json:"slot,omitempty"`
	Remove       bool       `json:"remove,omitempty"` // the machine's trees are still to be removed
	Since        time.Time  `json:"since"`

	version string // of the record; "" when it does not exist
}

// getRecord reads a machine's record; one that does not exist is Waiting.
func getRecord(ctx context.Context, records berth.Records, machine berth.ID) (record, error) {
	rec, err := records.Get(ctx, recordPrefix+string(machine))
	if errors.Is(err, fs.ErrNotExist) {
		return record{State: Waiting}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("cannot read record of machine %s: %w", machine, err)
	}
	return parseRecord(rec)
}

func parseRecord(rec berth.Record) (record, error) {
	var r record
	if err := json.Unmarshal(rec.Value, &r); err != nil {
		return record{}, fmt.Errorf("cannot decode record %q: %w", rec.Key, err)
	}
	r.version = rec.Version
	err := r.View.Check()
	if rec.Key != recordPrefix+string(r.View.Machine) {
		err = errors.Join(err, fmt.Errorf("it is of machine %q: %w", r.View.Machine, fs.ErrInvalid))
	}
	if r.State == Running {
		_, bad := berth.ParseID("slot", string(r.Slot))
		err = errors.Join(err, bad)
	}
	if err != nil {
		return record{}, fmt.Errorf("cannot use record %q: %w", rec.Key, err)
	}
	return r, nil
}

// putRecord writes a machine's record if nobody has changed it since it was
// read, else berth.ErrConflict, and takes over its new version.
func putRecord(ctx context.Context, records berth.Records, machine berth.ID, r *record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot encode record of machine %s: %w", machine, err)
	}
	version, err := records.Put(ctx, berth.Record{Key: recordPrefix + string(machine), Version: r.version, Value: value})
	if err != nil {
		return fmt.Errorf("cannot write record of machine %s: %w", machine, err)
	}
	r.version = version
	return nil
}
