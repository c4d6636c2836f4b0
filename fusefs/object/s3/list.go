package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"berth"
	"berth/fusefs/object"
)

// listAnswer is what we read of a ListObjectsV2 answer.
type listAnswer struct {
	IsTruncated           bool
	NextContinuationToken string
	EncodingType          string
	Contents              []struct {
		Key          string
		Size         int64
		ETag         string
		LastModified time.Time
	}
	CommonPrefixes []struct{ Prefix string }
}

// List implements object.Store. Names are always asked for in URL encoding:
// XML cannot carry all characters that a key may have.
func (s *Store) List(ctx context.Context, o object.ListOptions) (object.Page, error) {
	if err := object.CheckList(o); err != nil {
		return object.Page{}, err
	}
	if o.Max == 0 {
		o.Max = object.MaxPage
	}
	query := url.Values{
		"list-type":     {"2"},
		"encoding-type": {"url"},
		"prefix":        {o.Prefix},
		"max-keys":      {strconv.Itoa(o.Max)},
	}
	if o.Delimiter != "" {
		query.Set("delimiter", o.Delimiter)
	}
	if token, ok := strings.CutPrefix(o.After, object.PageToken); ok {
		query.Set("continuation-token", token)
	} else if o.After != "" {
		query.Set("start-after", o.After)
	}
	resp, err := s.do(ctx, http.MethodGet, "", query, nil)
	if err != nil {
		return object.Page{}, mapError(ctx, "list", o.Prefix, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return object.Page{}, mapError(ctx, "list", o.Prefix, err)
	}
	var answer listAnswer
	if err := xml.Unmarshal(body, &answer); err != nil {
		return object.Page{}, fmt.Errorf("cannot list objects under %q: %w: the answer cannot be read: %v", o.Prefix, berth.ErrUnavailable, err)
	}
	return answer.page(o)
}

// page checks the answer and turns it into a Page.
func (a *listAnswer) page(o object.ListOptions) (object.Page, error) {
	page := object.Page{Objects: make([]object.Info, 0, len(a.Contents))}
	name := func(encoded string) (string, error) {
		key := encoded
		if a.EncodingType == "url" {
			var err error
			if key, err = url.QueryUnescape(encoded); err != nil {
				return "", fmt.Errorf("cannot list objects under %q: the store answered with the name %q: %w", o.Prefix, encoded, err)
			}
		}
		if !strings.HasPrefix(key, o.Prefix) {
			return "", fmt.Errorf("cannot list objects under %q: the store answered with the name %q", o.Prefix, key)
		}
		return key, nil
	}
	for _, c := range a.Contents {
		key, err := name(c.Key)
		if err != nil {
			return object.Page{}, err
		}
		page.Objects = append(page.Objects, object.Info{
			Key: key, Size: c.Size, ETag: unquote(c.ETag), LastModified: wholeSeconds(c.LastModified),
		})
	}
	for _, p := range a.CommonPrefixes {
		prefix, err := name(p.Prefix)
		if err != nil {
			return object.Page{}, err
		}
		page.Prefixes = append(page.Prefixes, prefix)
	}
	if a.IsTruncated {
		if a.NextContinuationToken == "" {
			return object.Page{}, fmt.Errorf("cannot list objects under %q: the store says that there is more but not how to get it", o.Prefix)
		}
		page.Next = object.PageToken + a.NextContinuationToken
	}
	return page, nil
}
