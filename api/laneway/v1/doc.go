// Package lanewayv1 holds the generated messages of the public API. Its services
// are in lanewayv1connect.
package lanewayv1
