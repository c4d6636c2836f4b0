package mem_test

import (
	"testing"

	"berth/fusefs/object"
	"berth/fusefs/object/mem"
	"berth/fusefs/object/storetest"
)

func TestContract(t *testing.T) {
	storetest.All(t, storetest.Limits{}, func(*testing.T) object.Store { return new(mem.Store) })
}
