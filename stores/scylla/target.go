package scylla

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"
)

const (
	scheme      = "cql"
	defaultPort = 9042
)

// target is what a URL says: where the servers are and how to talk to them.
type target struct {
	hosts    []string // without ports
	port     int
	user     string
	password string
	keyspace string
	localDC  string
	tls      *tls.Config // nil: plain
	// consistency is that of reads and writes, serial that of compare-and-sets.
	consistency gocql.Consistency
	serial      gocql.SerialConsistency
}

// keyspaceName is what CQL takes without quotes and as it is written.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// CheckURL reports what is wrong with a store's URL, without a server.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// parseURL reads cql://[user:password@]host[:port][,host[:port]...]/keyspace?….
// Its errors never hold the URL, which may hold a password.
func parseURL(text string) (target, error) {
	t := target{port: defaultPort, consistency: gocql.Quorum, serial: gocql.Serial}
	rest, ok := strings.CutPrefix(text, scheme+"://")
	if !ok {
		return t, errors.New("scylla: the store URL has to begin with cql://")
	}
	// net/url knows one host only: hosts are read here, the rest there.
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	at := strings.LastIndex(authority, "@") + 1
	u, err := url.Parse(scheme + "://" + authority[:at] + "host" + rest[len(authority):])
	if err != nil {
		return t, errors.New("scylla: the store URL cannot be read: special characters of user and password have to be percent-encoded")
	}
	if err := t.setHosts(authority[at:]); err != nil {
		return t, err
	}
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
		if t.user == "" || t.password == "" {
			return t, errors.New("scylla: the store URL has to name both user and password, or neither")
		}
	}
	t.keyspace = strings.Trim(u.Path, "/")
	if t.keyspace == "" {
		return t, errors.New("scylla: the store URL names no keyspace: cql://host/keyspace")
	}
	if !keyspaceName.MatchString(t.keyspace) {
		return t, fmt.Errorf("scylla: keyspace %q: a name is a lower-case letter, then up to 47 lower-case letters, digits and _", t.keyspace)
	}
	if u.Fragment != "" {
		return t, errors.New("scylla: the store URL has a part behind #, which means nothing here")
	}
	return t, t.setOptions(u.RawQuery)
}

func (t *target) setHosts(list string) error {
	port := 0
	for h := range strings.SplitSeq(list, ",") {
		p := defaultPort
		if name, number, err := net.SplitHostPort(h); err == nil {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil || n == 0 {
				return fmt.Errorf("scylla: host %q: the port has to be 1 to 65535", name)
			}
			h, p = name, int(n)
		} else if strings.Count(h, ":") == 1 {
			return fmt.Errorf("scylla: host %q: want host or host:port", h)
		}
		h = strings.Trim(h, "[]")
		if h == "" {
			return errors.New("scylla: the store URL has an empty host")
		}
		if port != 0 && p != port {
			return fmt.Errorf("scylla: hosts with the ports %d and %d: all servers of a cluster have one CQL port", port, p)
		}
		port = p
		t.hosts = append(t.hosts, h)
	}
	t.port = port
	return nil
}

func (t *target) setOptions(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("scylla: the options of the store URL cannot be read")
	}
	known := []string{"tls", "ca_file", "server_name", "local_dc", "consistency"}
	for name := range values {
		if !slices.Contains(known, name) {
			return fmt.Errorf("scylla: the store URL has an unknown option %q: %s are known", name, strings.Join(known, ", "))
		}
	}
	t.localDC = values.Get("local_dc")
	switch c := values.Get("consistency"); c {
	case "", "quorum":
	case "local_quorum":
		if t.localDC == "" {
			return errors.New("scylla: consistency=local_quorum in the store URL needs local_dc: all processes have to take their quorum in one datacenter")
		}
		t.consistency, t.serial = gocql.LocalQuorum, gocql.LocalSerial
	default:
		return fmt.Errorf("scylla: consistency %q: quorum and local_quorum are allowed, for nothing less survives the loss of a node", c)
	}
	secure, err := strconv.ParseBool(cmp.Or(values.Get("tls"), "false"))
	if err != nil {
		return fmt.Errorf("scylla: tls=%s in the store URL: want true or false", values.Get("tls"))
	}
	caFile, serverName := values.Get("ca_file"), values.Get("server_name")
	if !secure {
		if caFile != "" || serverName != "" {
			return errors.New("scylla: ca_file and server_name in the store URL need tls=true")
		}
		return nil
	}
	t.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if caFile == "" {
		return nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("scylla: ca_file: %w", err)
	}
	t.tls.RootCAs = x509.NewCertPool()
	if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("scylla: ca_file %s holds no certificate in PEM form", caFile)
	}
	return nil
}

// servers names the hosts in errors and logs.
func (t *target) servers() string {
	list := make([]string, len(t.hosts))
	for i, h := range t.hosts {
		list[i] = net.JoinHostPort(h, strconv.Itoa(t.port))
	}
	return strings.Join(list, ", ")
}
