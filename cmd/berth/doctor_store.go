package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/fusefs/object"
	"berth/fusefs/object/s3"
)

// checkStoreAnswers probes a store that was named. The embedded one is probed
// when `berth up` starts it.
func checkStoreAnswers(ctx context.Context, conf *upConfig) finding {
	if conf.embedded() {
		return ok("the embedded store", "berth up runs it on loopback and keeps the objects below "+conf.State+"/store")
	}
	const remedy = "check --store, --bucket and the credentials; the bucket must exist, and its objects be readable, writable and deletable"
	store, err := s3.New(s3.Options{
		URL: conf.Store.URL, Bucket: conf.Store.Bucket, Region: conf.Store.Region,
		AccessKey: conf.credentials.accessKey, SecretKey: conf.credentials.secretKey,
		Session: conf.credentials.session,
	})
	if err != nil {
		return fail(err.Error(), "berth up does not start with it", remedy)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	abilities, err := object.Probe(ctx, store)
	if err != nil {
		return fail(err.Error(), "berth up does not start with it", remedy)
	}
	found := fmt.Sprintf("%s, bucket %s", conf.Store.URL, conf.Store.Bucket)
	lacks := lacking(abilities)
	if len(lacks) == 0 {
		return ok(found, "it can do all that berth uses")
	}
	return warn(found, strings.Join(lacks, "; "), "use a store with conditional writes if more than one gateway or tool writes to the bucket")
}

// lacking says what a store cannot do and what that means.
func lacking(a object.Abilities) []string {
	var lacks []string
	for _, ability := range a.Explain() {
		if !ability.Have {
			lacks = append(lacks, "no "+ability.Name+": "+ability.Text)
		}
	}
	return lacks
}
