package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"

	lanewayv1 "github.com/laneway/laneway/api/laneway/v1"
	"github.com/laneway/laneway/api/reason"
)

// CheckListen reports whether addr may be bound. Loopback needs no credentials;
// any other address needs TLS and authentication (design 9, access). This build
// has no authentication yet, so auth is false and other addresses are refused.
func CheckListen(addr string, tlsConfigured, auth bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen address %q: want host:port, for example 127.0.0.1:7480: %w", addr, err)
	}
	if isLoopback(host) || (tlsConfigured && auth) {
		return nil
	}
	shown := host
	if host == "" {
		shown = "every interface"
	}
	var missing []string
	if !tlsConfigured {
		missing = append(missing, "TLS")
	}
	if !auth {
		missing = append(missing, "authentication")
	}
	return fmt.Errorf("listen address %q would serve mailboxes on %s without %s; this version authenticates nobody, so it serves on loopback only: "+
		"use 127.0.0.1:PORT or [::1]:PORT, and reach it from elsewhere through an authenticating proxy or an SSH tunnel on the same host",
		addr, shown, strings.Join(missing, " and "))
}

// isLoopback reports whether host is this machine's loopback: a literal address
// or the name localhost. Other names are not resolved, because what they resolve
// to can change.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// refuseForeign keeps web pages away from a node without credentials: requests
// that a browser sends for another origin are refused always, and those for
// another host name (a rebound DNS name) when the node serves loopback only.
func refuseForeign(next http.Handler, loopbackOnly bool) http.Handler {
	origins := http.NewCrossOriginProtection()
	reject := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := origins.Check(r)
		if err == nil && loopbackOnly {
			host := r.Host
			if h, _, serr := net.SplitHostPort(host); serr == nil {
				host = h
			}
			if !isLoopback(strings.Trim(host, "[]")) {
				err = fmt.Errorf("host %q is not loopback; this node serves http://127.0.0.1, http://[::1] and http://localhost only", r.Host)
			}
		}
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		e := attach(connect.NewError(connect.CodePermissionDenied, err), &lanewayv1.ErrorReason{Reason: string(reason.ForeignHost)})
		if reject.IsSupported(r) {
			_ = reject.Write(w, r, e)
			return
		}
		http.Error(w, err.Error(), http.StatusForbidden)
	})
}
