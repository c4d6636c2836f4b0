package mounts

import (
	"context"
	"fmt"

	"berth"
)

// Get implements berth.Records.
func (c *Client) Get(ctx context.Context, key string) (berth.Record, error) {
	// Checked here too: a key that is no UTF-8 would not arrive as it is.
	if err := checkRecordKey(key); err != nil {
		return berth.Record{}, err
	}
	var rec berth.Record
	err := c.do(ctx, pathRecordsGet, recordMessage{Key: key}, &rec)
	return rec, err
}

// List implements berth.Records.
func (c *Client) List(ctx context.Context, prefix string) ([]berth.Record, error) {
	if err := checkRecordPrefix(prefix); err != nil {
		return nil, err
	}
	var all []berth.Record
	for q := (listMessage{Prefix: prefix}); ; {
		var page recordsMessage
		if err := c.do(ctx, pathRecordsList, q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Records...)
		if !page.More {
			return all, nil
		}
		if len(page.Records) == 0 {
			return nil, fmt.Errorf("cannot list records: mountd sent an empty page")
		}
		q.After = page.Records[len(page.Records)-1].Key
	}
}

// Put implements berth.Records.
func (c *Client) Put(ctx context.Context, rec berth.Record) (version string, err error) {
	if err := checkRecord(rec); err != nil {
		return "", err
	}
	var a versionMessage
	err = c.do(ctx, pathRecordsPut, rec, &a)
	return a.Version, err
}

// Delete implements berth.Records.
func (c *Client) Delete(ctx context.Context, key, version string) error {
	if err := checkRecordKey(key); err != nil {
		return err
	}
	return c.do(ctx, pathRecordsDelete, recordMessage{key, version}, &noneMessage{})
}
