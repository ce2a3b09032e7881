package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlobsAreBelowTheDataDirectoryUnlessABucketIsNamed(t *testing.T) {
	dir := t.TempDir()
	l, err := Load(Input{Environ: []string{"LANEWAY_DATA_DIR=" + dir}})
	require.NoError(t, err)
	got, err := l.BlobsURL()
	require.NoError(t, err)
	require.Equal(t, "file://"+filepath.ToSlash(filepath.Join(dir, "blobs")), got)

	for _, url := range []string{
		"file:///var/lib/laneway/blobs", "s3://b", "s3://b?region=eu-central-1",
		"s3://b?region=us-east-1&endpoint=http://127.0.0.1:9000&use_path_style=true",
		"s3://b?ssetype=aws:kms&kmskeyid=arn:aws:kms:eu-central-1:1:key/2",
	} {
		l, err := Load(Input{Environ: []string{"LANEWAY_BLOBS_URL=" + url}})
		require.NoError(t, err, url)
		got, err := l.BlobsURL()
		require.NoError(t, err)
		require.Equal(t, url, got)
		require.Contains(t, l.YAML(), "url: \""+escaped(url)+"\"", "it is printed as it can be read back")
	}
}

// escaped is how JSON writes an ampersand.
func escaped(url string) string {
	b := []byte{}
	for i := range len(url) {
		if url[i] == '&' {
			b = append(b, `\u0026`...)
			continue
		}
		b = append(b, url[i])
	}
	return string(b)
}

func TestABucketURLWithCredentialsIsRefusedWithoutBeingQuoted(t *testing.T) {
	for url, says := range map[string]string{
		"s3://AKIA:hunter2@b":                           "credentials",
		"s3://b?endpoint=https%3A%2F%2Fu%3Ahunter2%40h": "endpoint holds credentials",
		"s3://b?endpoint=hunter2":                       "endpoint is no URL",
		"s3://b?secret_access_key=hunter2":              "credentials belong into the environment",
		"s3://b?region=hunter2&region=x":                "region twice",
		"s3://b/hunter2":                                "names the bucket and nothing else",
		"s3://b:9000":                                   "names the bucket and nothing else",
		"s3:hunter2":                                    "names the bucket and nothing else",
		"s3://":                                         "names the bucket and nothing else",
		"s3://b#hunter2":                                "a part after #",
		"s3://b?region=%zz":                             "parameters cannot be read",
		"file://hunter2/b":                              "a path and nothing else",
		"file:///b?hunter2":                             "a path and nothing else",
		"mem://":                                        "in memory",
		"gs://hunter2":                                  "want file:///path or s3://bucket",
		"hunter2":                                       "want file:///path or s3://bucket",
		"s3://b%zz:hunter2@":                            "not a URL",
		"s3://b?endpoint=http://h&awssdk=v2&x-api-token=hunter2":  "none of",
		"s3://b?endpoint=ftp://hunter2&region=us-east-1":          "endpoint is no URL",
		"s3://b?anonymous=true&region=us-east-1&profile=hunter2x": "none of",
	} {
		_, err := Load(Input{Environ: []string{"LANEWAY_BLOBS_URL=" + url}})
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "hunter2", url)
		require.Len(t, problems(t, err), 1, url)
	}
}

func TestCredentialsInsideAParameterAreMasked(t *testing.T) {
	require.Equal(t, "s3://b?endpoint=https%3A%2F%2Fu%3Axxxxx%40h%3A1&region=x", mask("s3://b?endpoint=https://u:hunter2@h:1&region=x"))
	require.Equal(t, "s3://b?endpoint=https%3A%2F%2Fu%3Axxxxx%40h", mask("s3://b?endpoint=https%3A%2F%2Fu%3Ahunter2%40h"))
	require.Equal(t, "s3://b?kmskeyid=alias/x&session_token=xxxxx", mask("s3://b?kmskeyid=alias/x&session_token=hunter2"))
}
