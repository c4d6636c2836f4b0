package main

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

func TestDecodeConfig(t *testing.T) {
	type conf struct {
		Dir string `json:"dir"`
	}
	tests := []struct {
		name, in string
		want     string // part of the error, "" = none
	}{
		{"plain", `{"dir":"/x"}`, ""},
		{"trailing newline", "{\"dir\":\"/x\"}\n", ""},
		{"unknown field", `{"dir":"/x","oops":1}`, "oops"},
		{"two documents", `{"dir":"/x"}{"dir":"/y"}`, "more follows"},
		{"empty", ``, "EOF"},
		{"not JSON", `dir: /x`, "cannot decode configuration"},
		{"wrong type", `{"dir":1}`, "dir"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeConfig[conf](strings.NewReader(tt.in))
			if tt.want == "" {
				if err != nil || got.Dir != "/x" {
					t.Fatalf("got %+v, %v; want dir /x", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := decodeConfig[conf](strings.NewReader(strings.Repeat(" ", maxConfig+1))); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("too long: got %v, want fs.ErrInvalid", err)
	}
}
