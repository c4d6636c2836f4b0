package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/api"
)

// credentials are made at the first start and kept in STATE/credentials.json,
// which only root can read. The bucket holds hashes of the tokens.
type credentials struct {
	Workspace     string `json:"workspace"`
	User          string `json:"user"`
	OperatorToken string `json:"operator_token"`
	AdminToken    string `json:"admin_token"`
	MemberToken   string `json:"member_token"`
	APIKey        string `json:"api_key"`
	APIKeyID      string `json:"api_key_id"`

	// Of the embedded store.
	StoreAccessKey string `json:"store_access_key"`
	StoreSecretKey string `json:"store_secret_key"`
}

// loadCredentials reads the state's credentials, or makes them for the given
// workspace and user.
func (s *stateDir) loadCredentials(workspace, user string) (credentials, error) {
	var c credentials
	data, err := os.ReadFile(s.credentialsFile())
	if err == nil {
		if err := json.Unmarshal(data, &c); err != nil {
			return c, fmt.Errorf("cannot read %s: %w", s.credentialsFile(), err)
		}
		return c, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("cannot read credentials: %w", err)
	}
	c = credentials{
		Workspace:      workspace,
		User:           user,
		OperatorToken:  api.NewOperatorToken(),
		AdminToken:     api.NewAdminToken(),
		MemberToken:    api.NewMemberToken(),
		APIKey:         api.NewAPIKey(),
		APIKeyID:       "k" + randomHex(8),
		StoreAccessKey: "berth" + randomHex(8),
		StoreSecretKey: randomHex(24),
	}
	data, err = json.MarshalIndent(c, "", "  ")
	if err != nil {
		return c, fmt.Errorf("cannot encode credentials: %w", err)
	}
	return c, writeSecret(s.credentialsFile(), append(data, '\n'))
}

// loadSecret reads the installation's secret, 32 bytes in hex, or makes it.
// Cookies, sign-in links and previews are signed with keys derived from it.
func (s *stateDir) loadSecret() (string, error) {
	data, err := os.ReadFile(s.secretFile())
	if errors.Is(err, fs.ErrNotExist) {
		secret := randomHex(32)
		return secret, writeSecret(s.secretFile(), []byte(secret))
	}
	if err != nil {
		return "", fmt.Errorf("cannot read secret: %w", err)
	}
	if raw, err := hex.DecodeString(string(data)); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("cannot use %s: it must hold 64 hexadecimal digits: %w", s.secretFile(), fs.ErrInvalid)
	}
	return string(data), nil
}

func randomHex(bytes int) string {
	buf := make([]byte, bytes)
	rand.Read(buf) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(buf)
}

// writeSecret writes a file that only its owner can read, whole or not at all:
// a credential lost half-way through the first start could not be made again.
func writeSecret(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".tmp-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	defer os.Remove(tmp.Name()) // after the rename there is nothing to remove
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}
