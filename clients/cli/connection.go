package cli

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	parley "github.com/parleyhq/parley/sdk/go"
)

// connectionReport writes changes of a stream's state to w, for humans.
type connectionReport struct {
	w io.Writer
	// live describes what the command does while the stream is live.
	live string

	disconnected atomic.Bool
}

// changed is the callback for a change of state.
func (r *connectionReport) changed(change parley.StateChange) {
	switch change.State {
	case parley.StateWaiting:
		r.disconnected.Store(true)
		why := "the server asked to reconnect"
		if change.Err != nil {
			why = change.Err.Error()
		}
		_, _ = fmt.Fprintf(r.w, "parley: %s; retrying in %s\n", why, change.Wait.Round(time.Millisecond))
	case parley.StateLive:
		if r.disconnected.Swap(false) {
			_, _ = fmt.Fprintln(r.w, "parley: reconnected")
		} else {
			_, _ = fmt.Fprintf(r.w, "parley: %s\n", r.live)
		}
	case parley.StateConnecting, parley.StateEnded:
	}
}
