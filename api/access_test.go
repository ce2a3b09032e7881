package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
	"github.com/laneway/laneway/api/reason"
)

func TestOnlyLoopbackIsBoundWithoutTLSAndAuthentication(t *testing.T) {
	for _, ok := range []string{"127.0.0.1:7480", "127.8.9.1:0", "[::1]:7480", "localhost:7480", "[::ffff:127.0.0.1]:1"} {
		require.NoError(t, api.CheckListen(ok, false, false), ok)
	}
	for _, bad := range []string{":7480", "0.0.0.0:7480", "[::]:7480", "10.0.0.1:7480", "example.org:7480", "localhost.example.org:1"} {
		err := api.CheckListen(bad, false, false)
		require.ErrorContains(t, err, "without TLS and authentication", bad)
		require.ErrorContains(t, err, "use 127.0.0.1:PORT", bad)
		require.ErrorContains(t, api.CheckListen(bad, true, false), "without authentication", bad)
		require.ErrorContains(t, api.CheckListen(bad, false, true), "without TLS", bad)
		require.NoError(t, api.CheckListen(bad, true, true), bad)
	}
	require.ErrorContains(t, api.CheckListen("7480", false, false), "want host:port")
}

func TestWebPagesCannotReachALoopbackNode(t *testing.T) {
	f := newFixture(t)
	for _, tt := range []struct {
		host    string
		header  [2]string
		refused bool
	}{
		{host: ""},
		{host: "localhost:7480"},
		{host: "[::1]:7480"},
		{host: "rebound.example.org:7480", refused: true},
		{host: "192.168.1.2", refused: true},
		{header: [2]string{"Sec-Fetch-Site", "cross-site"}, refused: true},
		{header: [2]string{"Origin", "https://example.org"}, refused: true},
	} {
		req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, f.server.URL+lanewayv1connect.AdminServiceListShardsProcedure, strings.NewReader("{}"))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if tt.host != "" {
			req.Host = tt.host
		}
		if tt.header[0] != "" {
			req.Header.Set(tt.header[0], tt.header[1])
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		if tt.refused {
			require.Equal(t, http.StatusForbidden, res.StatusCode, "%+v", tt)
			require.Equal(t, string(reason.ForeignHost), res.Header.Get(reason.Header))
		} else {
			require.Equal(t, http.StatusOK, res.StatusCode, "%+v", tt)
		}
	}
}
