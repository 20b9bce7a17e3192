package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// image is what becomes one layer: files of this machine and a few lines of text.
type image struct {
	w    *tar.Writer
	seen map[string]bool
	err  error // the first
}

// importImage makes an image of what fill adds; changes are Dockerfile
// instructions.
func importImage(ctx context.Context, tag string, changes []string, fill func(*image)) error {
	read, write := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		i := &image{w: tar.NewWriter(write), seen: map[string]bool{}}
		fill(i)
		err := errors.Join(i.err, i.w.Close())
		_ = write.CloseWithError(err) // it never fails
		filled <- err
	}()
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	_, err := command{stdin: read}.run(ctx, "docker", append(args, "-", tag)...)
	read.Close()
	if err := errors.Join(err, <-filled); err != nil {
		return fmt.Errorf("image %s: %w", tag, err)
	}
	return nil
}

func (i *image) header(h *tar.Header) bool {
	h.Name = strings.TrimPrefix(h.Name, "/")
	if i.err != nil || i.seen[h.Name] {
		return false
	}
	i.seen[h.Name] = true
	if parent := path.Dir(h.Name); parent != "." {
		i.dir(parent, 0o755, 0)
	}
	if i.err == nil {
		i.err = i.w.WriteHeader(h)
	}
	return i.err == nil
}

func (i *image) dir(name string, mode int64, owner int) {
	i.header(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: owner, Gid: owner})
}

func (i *image) link(name, target string) {
	i.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

func (i *image) text(name string, mode int64, text string) {
	if i.header(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}) {
		_, i.err = io.WriteString(i.w, text)
	}
}

// file adds what source is, links followed.
func (i *image) file(name, source string) {
	f, err := os.Open(source)
	if err != nil {
		i.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		i.fail(err)
		return
	}
	if i.header(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}) {
		_, i.err = io.Copy(i.w, f)
	}
}

// tree adds a folder at its own place, without the files that leave holds for.
func (i *image) tree(dir string, leave func(name string) bool) {
	err := filepath.WalkDir(dir, func(at string, entry os.DirEntry, err error) error {
		if err != nil || leave(entry.Name()) {
			return err
		}
		if info, err := os.Stat(at); err != nil {
			return nil //nolint:nilerr // a link that leads nowhere is not worth an image
		} else if info.Mode().IsRegular() {
			i.file(at, at)
		}
		return i.err
	})
	if err != nil {
		i.fail(err)
	}
}

func (i *image) fail(err error) {
	if i.err == nil {
		i.err = err
	}
}

// needs finds the libraries of a program in what ldd says.
var needs = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// program adds a program and the libraries that it needs.
func (i *image) program(ctx context.Context, name string) {
	i.file(name, name)
	said, err := command{}.run(ctx, "ldd", name)
	if err != nil {
		i.fail(err)
		return
	}
	for _, match := range needs.FindAllStringSubmatch(said, -1) {
		i.file(match[1], match[1])
	}
}

// makeDuly makes the image of the Dockerfile, without its stage that builds.
func makeDuly(ctx context.Context, tag, duly, drone string) error {
	changes := []string{"USER 65532:65532", `ENTRYPOINT ["/duly"]`, "EXPOSE 7310"}
	return importImage(ctx, tag, changes, func(i *image) {
		i.file("/duly", duly)
		i.file("/drone", drone)
		i.dir("/tmp", 0o1777, 0)
		i.dir("/data", 0o755, 65532)
	})
}

// makeNATS makes what stands for the published alpine image: the server, and a
// wget for the health check.
func makeNATS(ctx context.Context, tag, server, busybox string) error {
	changes := []string{`ENTRYPOINT ["/usr/local/bin/nats-server"]`, "ENV PATH=/bin:/usr/local/bin"}
	return importImage(ctx, tag, changes, func(i *image) {
		i.file("/usr/local/bin/nats-server", server)
		i.file("/bin/busybox", busybox)
		i.link("/bin/wget", "busybox")
		i.dir("/data", 0o755, 0)
		i.dir("/tmp", 0o1777, 0)
	})
}

// postgresUser owns the server and its files; it may not be root.
const postgresUser = 999

// postgresStart is the part of the published image's entry point that is needed
// here: the files are made once, with the user and the database that it is told.
const postgresStart = `#!/bin/sh
set -e
data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
    initdb -D $data -U "$POSTGRES_USER" --auth=trust --encoding=UTF8 --locale=C
    echo 'host all all all trust' >>$data/pg_hba.conf
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $data -j postgres
    for script in /docker-entrypoint-initdb.d/*.sh; do
        if [ -r "$script" ]; then . "$script"; fi
    done
fi
exec postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
`

// makePostgres makes what stands for the published image, of the programs in bin,
// which come with Debian's package.
func makePostgres(ctx context.Context, tag, bin, busybox string) error {
	share, err := command{}.run(ctx, filepath.Join(bin, "pg_config"), "--sharedir")
	if err != nil {
		return err
	}
	libraries, err := command{}.run(ctx, filepath.Join(bin, "pg_config"), "--pkglibdir")
	if err != nil {
		return err
	}
	changes := []string{
		fmt.Sprintf("USER %d:%d", postgresUser, postgresUser), "ENV PATH=" + bin + ":/bin", `ENTRYPOINT ["/start"]`,
	}
	return importImage(ctx, tag, changes, func(i *image) {
		i.text("/etc/passwd", 0o644, fmt.Sprintf("root:x:0:0::/:/bin/sh\npostgres:x:%d:%d::/tmp:/bin/sh\n", postgresUser, postgresUser))
		i.text("/start", 0o755, postgresStart)
		i.file("/bin/busybox", busybox)
		for _, name := range []string{"sh", "chmod", "hostname", "rm", "sleep", "touch"} {
			i.link("/bin/"+name, "busybox")
		}
		for _, name := range []string{"postgres", "initdb", "pg_isready", "psql", "pg_basebackup"} {
			i.program(ctx, filepath.Join(bin, name))
		}
		// The compiler of expressions is three times as large as all the rest.
		compiler := func(name string) bool {
			return strings.HasPrefix(name, "llvmjit") || name == "bitcode" || name == "pgxs"
		}
		i.tree(strings.TrimSpace(share), compiler)
		i.tree(strings.TrimSpace(libraries), func(name string) bool {
			return compiler(name) || slices.Contains([]string{".a", ".bc"}, filepath.Ext(name))
		})
		i.tree("/usr/share/zoneinfo", func(string) bool { return false })
		i.dir("/tmp", 0o1777, 0)
		i.dir("/var/run/postgresql", 0o3777, postgresUser) // as the image of PostgreSQL has it: a tmpfs there keeps the mode
		i.dir("/var/lib/postgresql/data", 0o700, postgresUser)
	})
}
