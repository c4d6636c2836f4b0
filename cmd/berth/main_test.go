package main

import (
	"fmt"
	"os"
	"testing"

	"berth/fusefs"
)

// TestMain makes the test binary what a mountd of the tests starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == guardCommand {
		if err := fusefs.ServeGuard(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
