package api_test

import (
	"net/http"
	"net/http/httptest"

	"github.com/laneway/laneway/api"
	"github.com/laneway/laneway/api/laneway/v1/lanewayv1connect"
)

// inProcess calls a handler without a network.
type inProcess struct{ h http.Handler }

func (p inProcess) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Result(), nil
}

func direct(h *api.Handler) lanewayv1connect.MailboxServiceClient {
	return lanewayv1connect.NewMailboxServiceClient(inProcess{h}, "http://127.0.0.1")
}
