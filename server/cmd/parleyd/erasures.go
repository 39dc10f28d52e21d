package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parleyhq/parley/server"
)

// readErasures reads the erasures of a file, or none if path is empty. The file is the output of
// `parley admin erasures --json`, a JSON object for each.
func readErasures(path string) ([]server.Erasure, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	var all []server.Erasure
	for decoder := json.NewDecoder(file); ; {
		var e struct {
			RequestID string `json:"request_id"`
			UserID    string `json:"user_id"`
		}
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: erasure %d: %w", path, len(all)+1, err)
		}
		all = append(all, server.Erasure{RequestID: e.RequestID, UserID: e.UserID})
	}
}
