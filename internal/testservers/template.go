package testservers

import (
	"bytes"
	"embed"
	"os"
	"path"
	"strconv"
	"text/template"
)

// writeTemplate writes a configuration, which may hold a password.
func writeTemplate(files embed.FS, name, to string, data any) error {
	t, err := template.New(path.Base(name)).Funcs(template.FuncMap{"quote": strconv.Quote}).ParseFS(files, name)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}
