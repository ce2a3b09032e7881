package blobs

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// s3Parameters are those that an S3 bucket's URL may have. None holds a secret:
// credentials come from the SDK's environment alone (AWS_ACCESS_KEY_ID and so on,
// the shared files, a web identity, the machine's role).
var s3Parameters = []string{
	"region", "endpoint", "use_path_style", "profile", "role", "dualstack", "fips", "ssetype", "kmskeyid", "request_checksum_calculation",
}

// CheckURL says what is wrong with a bucket's URL as far as that can be told
// without the bucket. Its errors never quote a value, which might be a secret.
func CheckURL(bucketURL string) (*url.URL, error) {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, errors.New("it is not a URL")
	}
	switch {
	case u.User != nil:
		return nil, errors.New("it holds credentials, which belong into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)")
	case u.Fragment != "":
		return nil, errors.New("it has a part after #")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" && u.Host != "." || u.Path == "" || u.RawQuery != "" {
			return nil, errors.New("a file bucket has a path and nothing else")
		}
	case "s3":
		return u, checkS3(u)
	case "mem":
	default:
		return nil, errors.New("want file:///path or s3://bucket")
	}
	return u, nil
}

func checkS3(u *url.URL) error {
	if u.Host == "" || u.Port() != "" || strings.Trim(u.Path, "/") != "" {
		return errors.New("an S3 bucket's URL names the bucket and nothing else before its parameters")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("its parameters cannot be read")
	}
	for name, values := range q {
		if !slices.Contains(s3Parameters, name) {
			return fmt.Errorf("it has a parameter that is none of %s; credentials belong into the environment", strings.Join(s3Parameters, ", "))
		}
		if len(values) > 1 {
			return fmt.Errorf("it has the parameter %s twice", name)
		}
	}
	if !q.Has("endpoint") {
		return nil
	}
	e, err := url.Parse(q.Get("endpoint"))
	switch {
	case err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Hostname() == "":
		return errors.New("its endpoint is no URL (https://host:port)")
	case e.User != nil:
		return errors.New("its endpoint holds credentials, which belong into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)")
	}
	return nil
}
