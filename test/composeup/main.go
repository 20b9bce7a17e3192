package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Everything, the build of old and new images included, is done after this long.
const wholeMax = 20 * time.Minute

// settings are the command line.
type settings struct {
	root, bin, images, compose string
	only                       string
}

func main() {
	var s settings
	flag.StringVar(&s.root, "root", ".", "folder of the checkout")
	flag.StringVar(&s.bin, "bin", "", "folder for programs and logs")
	flag.StringVar(&s.compose, "compose", "", "Compose's program")
	flag.StringVar(&s.images, "images", "offline", "offline: made of what is on this machine; published: pulled, and built of the Dockerfile")
	flag.StringVar(&s.only, "only", "", "one of tour, single, cluster, upgrade; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, wholeMax)
	failed, err := s.run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// run does all parts, and says how many checks failed. Its error is of what is
// not checked itself: building, mostly.
func (s settings) run(ctx context.Context) (failed int, err error) {
	for _, dir := range []*string{&s.root, &s.bin, &s.compose} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return 0, err
		}
	}
	if err := os.MkdirAll(s.bin, 0o755); err != nil {
		return 0, err
	}
	id := strconv.Itoa(os.Getpid())
	b := builder{root: s.root, bin: s.bin, tag: id}
	began := time.Now()
	var made images
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), made)) }()
	if s.images == "published" {
		made, err = b.published(ctx)
	} else {
		made, err = b.offline(ctx)
	}
	if err != nil {
		return 0, err
	}
	var commit string
	if made.before, commit, err = b.earlier(ctx); err != nil {
		return 0, err
	}
	fmt.Printf("compose: images are there (%.0fs)\n", time.Since(began).Seconds())

	r := &record{}
	profile, cluster := "postgres", "postgres-cluster"
	if s.images == "published" {
		profile, cluster = "cockroach", "cluster"
	}
	for _, part := range []struct {
		name, profile string
		do            func(*world, context.Context)
	}{
		{"tour", profile, (*world).tour},
		{"single", "single", (*world).single},
		{"cluster", cluster, (*world).cluster},
		{"upgrade", profile, (*world).upgrade},
	} {
		if s.only != "" && s.only != part.name {
			continue
		}
		if part.name == "upgrade" && made.before == "" {
			fmt.Println("compose: no upgrade was tried: the commit before is not here (a shallow clone?)")
			continue
		}
		fmt.Printf("compose: %s, profile %s\n", part.name, part.profile)
		st, err := newStack(s.compose, s.root, s.bin, "duly-test-"+id+"-"+part.name, part.profile)
		if err != nil {
			return r.failed, err
		}
		w := &world{stack: st, record: r, images: made, commit: commit, books: newBooks()}
		part.do(w, ctx)
		w.end(context.WithoutCancel(ctx), filepath.Join(s.bin, part.name+".log"))
	}
	fmt.Printf("compose: %d checks, %d failed\n", r.checks, r.failed)
	return r.failed, nil
}

// forget removes the images that were made here.
func forget(ctx context.Context, i images) error {
	var errs []error
	for _, tag := range []string{i.duly, i.before, i.nats, i.postgres} {
		if tag != "" {
			_, err := command{}.run(ctx, "docker", "image", "rm", "--force", tag)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// record counts checks.
type record struct{ checks, failed int }

// check does one thing and says how it went.
func (r *record) check(what string, do func() error) bool {
	began := time.Now()
	err := do()
	r.checks++
	word := "ok    "
	if err != nil {
		r.failed++
		word = "FAILED"
	}
	fmt.Printf("  %s %s (%.1fs)\n", word, what, time.Since(began).Seconds())
	if err != nil {
		fmt.Printf("         %v\n", err)
	}
	return err == nil
}
