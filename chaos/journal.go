package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Journal writes values to a file, each as one line of JSON. It is not safe for concurrent use.
type Journal struct {
	file *os.File
	buf  *bufio.Writer
	err  error
}

// NewJournal creates the file at path, or truncates it. If path is empty, it creates no file and
// the journal drops everything.
func NewJournal(path string) (*Journal, error) {
	if path == "" {
		return new(Journal), nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Journal{file: file, buf: bufio.NewWriterSize(file, 1<<20)}, nil
}

// Write appends a value. After the first error it does nothing; Close returns that error.
func (j *Journal) Write(v any) {
	if j.buf == nil || j.err != nil {
		return
	}
	data, err := json.Marshal(v)
	if err == nil {
		_, err = j.buf.Write(append(data, '\n'))
	}
	j.err = err
}

// Close flushes the buffer and closes the file. Its error includes the first error of Write.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return errors.Join(j.err, j.buf.Flush(), j.file.Close())
}

// ReadJournal calls add with every value in the file at path. It ignores a truncated last line,
// which a killed run leaves.
func ReadJournal[T any](path string, add func(*T)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	defer func() { _ = f.Close() }()
	dec := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	for {
		v := new(T)
		err := dec.Decode(v)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		add(v)
	}
}

// WriteReport writes a part of a run's report to the file at path as JSON.
func WriteReport(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}

// ReadReport reads the file at path, which WriteReport wrote.
func ReadReport[T any](path string) (*T, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	return v, nil
}
