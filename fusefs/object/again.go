package object

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// askAgain asks, and asks once more each time that no answer came for a while,
// until the first answer or error of any of them: a store that hung answers new
// questions when it is back, but not those that were lost in it. The context
// bounds all; that of the answer lives as long as it. drop gets what comes too
// late.
func askAgain[T any](ctx context.Context, every time.Duration, ask func(context.Context) (T, error), drop func(T)) (T, error) {
	type answer struct {
		number int
		value  T
		err    error
	}
	answers, enough := make(chan answer), make(chan struct{})
	defer close(enough)
	var cancels []context.CancelFunc
	begin := func() {
		number := len(cancels)
		ctx, cancel := context.WithCancel(ctx)
		cancels = append(cancels, cancel)
		go func() {
			value, err := withoutPanic(ctx, ask)
			select {
			case answers <- answer{number, value, err}:
			case <-enough:
				if err == nil {
					drop(value)
				}
				cancel()
			}
		}()
	}
	begin()
	timer := time.NewTicker(every)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			for i, cancel := range cancels {
				if i != a.number || a.err != nil {
					cancel()
				}
			}
			return a.value, a.err
		case <-timer.C:
			begin()
		}
	}
}

// withoutPanic makes a panic, which would end the process here, an error.
func withoutPanic[T any](ctx context.Context, ask func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("BUG: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return ask(ctx)
}
