package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

//go:embed templates
var templates embed.FS

// file is one asset with its name by content, so that a browser keeps it for ever.
type file struct {
	hash    string
	mime    string
	content []byte
	gzip    []byte
}

// readFiles reads the folder assets.
func readFiles(from fs.FS) (map[string]*file, error) {
	files := map[string]*file{}
	err := fs.WalkDir(from, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		var small bytes.Buffer
		z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err = z.Write(content); err != nil {
			return err
		}
		if err = z.Close(); err != nil {
			return err
		}
		kind := mime.TypeByExtension(path.Ext(name))
		if strings.HasSuffix(name, ".js") {
			kind = "text/javascript; charset=utf-8" // whatever the machine's table says
		}
		files[path.Base(name)] = &file{hash: hex.EncodeToString(sum[:6]), mime: kind, content: content, gzip: small.Bytes()}
		return nil
	})
	return files, err
}

// assetURL is the address of an asset.
func (c *console) assetURL(name string) (string, error) {
	f, ok := c.files[name]
	if !ok {
		return "", fmt.Errorf("console: no asset %s", name)
	}
	return c.Base + Path + "assets/" + f.hash + "/" + name, nil
}

// asset serves one file. An old hash is answered with the present file, and not kept.
func (c *console) asset(w http.ResponseWriter, r *http.Request) {
	f, ok := c.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.mime)
	h.Set("Vary", "Accept-Encoding")
	if r.PathValue("hash") == f.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := f.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.gzip
	}
	// The client that went away has no use for the error.
	_, _ = w.Write(body)
}
