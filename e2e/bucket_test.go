package e2e

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// A bucket is the store seen by a plain S3 client, as anyone's tool would.
type bucket struct {
	client *minio.Client
	name   string
}

// bucket opens the embedded store of a running berth.
func (b *berth) bucket(t testing.TB) bucket {
	t.Helper()
	access, secret := b.storeCredentials(t)
	var status struct {
		Store struct{ Endpoint, Bucket string }
	}
	b.status(t, &status)
	client, err := minio.New(status.Store.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(access, secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	return bucket{client, status.Store.Bucket}
}

// storeCredentials reads those that the first start made.
func (b *berth) storeCredentials(t testing.TB) (access, secret string) {
	t.Helper()
	var c struct {
		Access string `json:"store_access_key"`
		Secret string `json:"store_secret_key"`
	}
	text, err := os.ReadFile(filepath.Join(b.State, "credentials.json"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Access, c.Secret
}

// object returns what is under a key; ok is false when nothing is.
func (k bucket) object(t testing.TB, key string) (content string, ok bool) {
	t.Helper()
	o, err := k.client.GetObject(context.Background(), k.name, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	text, err := io.ReadAll(o)
	if minio.ToErrorResponse(err).Code == "NoSuchKey" {
		return "", false
	}
	if err != nil {
		t.Fatalf("GET %s: %v", key, err)
	}
	return string(text), true
}

// put makes an object as another tool would.
func (k bucket) put(t testing.TB, key, content string) {
	t.Helper()
	_, err := k.client.PutObject(context.Background(), k.name, key, strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	if err != nil {
		t.Fatalf("PUT %s: %v", key, err)
	}
}
