package testservers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates are a CA and a server's certificate of it for loopback, as PEM
// files.
type certificates struct {
	caFile, certFile, keyFile string

	pool *x509.CertPool
}

// newCertificates makes both in a directory. The CA's key is forgotten.
func newCertificates(dir string) (*certificates, error) {
	c := &certificates{
		caFile: filepath.Join(dir, "ca.pem"), certFile: filepath.Join(dir, "server.pem"), keyFile: filepath.Join(dir, "server-key.pem"),
		pool: x509.NewCertPool(),
	}
	ca := template509("Laneway test CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, err
	}
	c.pool.AddCert(ca)

	server := template509("Laneway test server")
	server.KeyUsage, server.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 3)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{
		{c.caFile, "CERTIFICATE", caDER},
		{c.certFile, "CERTIFICATE", der},
		{c.keyFile, "PRIVATE KEY", keyDER},
	} {
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// keyWithChain writes the server's key, its certificate and the CA's into one
// file, and returns its path.
func (c *certificates) keyWithChain() (string, error) {
	var all []byte
	for _, f := range []string{c.keyFile, c.certFile, c.caFile} {
		pem, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		all = append(all, pem...)
	}
	path := filepath.Join(filepath.Dir(c.keyFile), "server-chain.pem")
	return path, os.WriteFile(path, all, 0o600)
}

// client trusts the CA and nothing else.
func (c *certificates) client() *tls.Config {
	return &tls.Config{RootCAs: c.pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// template509 is a certificate that is valid for as long as a test may run.
func template509(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}
