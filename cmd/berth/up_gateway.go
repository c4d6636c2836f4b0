package main

import "syscall"

// gatewayCredential is the user the gateway runs as: no supplementary groups.
func gatewayCredential(uid, gid int) *syscall.Credential {
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}
}
