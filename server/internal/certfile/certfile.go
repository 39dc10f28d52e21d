// Package certfile reads certificates from PEM files and reads them again when the files change, so
// that a renewed certificate is used without a restart.
//
// It has no background work. A caller gets the current certificate for each handshake, and at most
// once a second that call checks whether the files have changed. Established connections keep their
// certificates.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// interval is the minimum time between two checks of the files.
const interval = time.Second

// Pair is a certificate with its private key. Its methods may be called concurrently.
type Pair struct{ file file[*tls.Certificate] }

// NewPair reads a certificate, with its chain, and its private key. If changed files are invalid,
// the previous certificate stays in use and log receives an error.
func NewPair(cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{file[*tls.Certificate]{paths: []string{cert, key}, log: log, read: func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}}}
	return p, p.file.load()
}

// Certificate returns the current certificate, which must not be changed.
func (p *Pair) Certificate() *tls.Certificate { return p.file.get() }

// Roots is a set of trusted certificates. Its methods may be called concurrently.
type Roots struct{ file file[*x509.CertPool] }

// NewRoots reads the certificates of a file. If the changed file is invalid, the previous
// certificates stay in use and log receives an error.
func NewRoots(path string, log *slog.Logger) (*Roots, error) {
	r := &Roots{file[*x509.CertPool]{paths: []string{path}, log: log, read: func() (*x509.CertPool, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(data) {
			return nil, errors.New("contains no certificate")
		}
		return roots, nil
	}}}
	return r, r.file.load()
}

// Pool returns the current certificates, which must not be changed.
func (r *Roots) Pool() *x509.CertPool { return r.file.get() }

// file is a value that is read from files. mu guards the fields below it.
type file[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	value   T
	checked time.Time
	// used is the state of the files that value was read from. failed is the last invalid state.
	used, failed []os.FileInfo
}

// load reads the value for the first time.
func (f *file[T]) load() error {
	f.checked = time.Now()
	infos, err := stat(f.paths)
	if err == nil {
		f.value, err = f.read()
	}
	if err != nil {
		return fmt.Errorf("read %v: %w", f.paths, err)
	}
	f.used = infos
	return nil
}

// get returns the value, after reading it again if the files have changed. Invalid files are
// reported once and read again each time, because a certificate and its key are replaced one after
// the other.
func (f *file[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) < interval {
		return f.value
	}
	f.checked = now
	infos, err := stat(f.paths) // before the read, so that a change in between is seen by the next check
	if err == nil && same(infos, f.used) {
		f.failed = nil
		return f.value
	}
	var value T
	if err == nil {
		value, err = f.read()
	}
	if err != nil {
		if !same(infos, f.failed) {
			f.log.Error("certificate files are invalid: the previous certificates stay in use", "files", f.paths, "error", err)
		}
		f.failed = infos
		return f.value
	}
	f.value, f.used, f.failed = value, infos, nil
	f.log.Info("certificate files read again", "files", f.paths)
	return f.value
}

// stat returns the state of each file. An element is nil if its file can't be read; the error says
// why.
func stat(paths []string) ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(paths))
	var errs []error
	for i, path := range paths {
		var err error
		infos[i], err = os.Stat(path)
		errs = append(errs, err)
	}
	return infos, errors.Join(errs...)
}

// same reports whether two states are equal: no file was replaced, written or removed.
func same(a, b []os.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
	})
}
