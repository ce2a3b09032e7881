package localtemporal

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

func TestUseAddsWhatIsMissing(t *testing.T) {
	f := newFake()
	o := Options{Address: f.start(t)}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Address != o.Address || s.Namespace != DefaultNamespace || s.Pid() != 0 {
		t.Errorf("got %+v", s)
	}
	if got := f.namespaces[DefaultNamespace]; !maps.Equal(got, SearchAttributes()) {
		t.Errorf("search attributes %v", got)
	}
	changes := f.changes
	if _, err := Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if f.changes != changes {
		t.Error("a second start changed something")
	}
	delete(f.namespaces[DefaultNamespace], "LanewayLane")
	if _, err := Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := f.namespaces[DefaultNamespace]; !maps.Equal(got, SearchAttributes()) {
		t.Errorf("search attributes %v", got)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stop of a server that isn't ours: %v", err)
	}
}

func TestUseRefusesAnAttributeOfAnotherType(t *testing.T) {
	f := newFake()
	f.namespaces[DefaultNamespace] = map[string]enumspb.IndexedValueType{"LanewayShard": enumspb.INDEXED_VALUE_TYPE_KEYWORD}
	_, err := Start(t.Context(), Options{Address: f.start(t)})
	if err == nil || !strings.Contains(err.Error(), "LanewayShard is of type Keyword, Laneway needs Int") {
		t.Fatalf("got %v", err)
	}
}

func TestUseOfNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Start(ctx, Options{Address: l.Addr().String()})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("got %v", err)
	}
}
