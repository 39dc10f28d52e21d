package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/parleyhq/parley/server"
)

// validErased matches the ids of users and of erasures.
var validErased = regexp.MustCompile(`^[!-~]{1,128}$`)

// readErasures reads the erasures of a file, or none if path is empty. The file is the output of
// `parley admin erasures --json`, a JSON object for each. It returns an error if one of them is not
// valid.
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
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: erasure %d: %w", path, len(all)+1, err)
		case !validErased.MatchString(e.RequestID):
			return nil, fmt.Errorf("%s: erasure %d: request_id must be 1 to 128 printable ASCII characters without spaces", path, len(all)+1)
		case !validErased.MatchString(e.UserID):
			return nil, fmt.Errorf("%s: erasure %d: user_id must be 1 to 128 printable ASCII characters without spaces", path, len(all)+1)
		}
		all = append(all, server.Erasure{RequestID: e.RequestID, UserID: e.UserID})
	}
}
