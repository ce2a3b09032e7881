package broker

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// dialHook remembers why the last connection failed, so that a timeout can say
// more than that time has passed.
type dialHook struct{ last *atomic.Pointer[error] }

var _ kgo.HookBrokerConnect = (*dialHook)(nil)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *dialHook) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		h.last.Store(nil)
	} else {
		h.last.Store(&err)
	}
}
