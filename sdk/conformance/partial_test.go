package conformance_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	parleyv1 "github.com/parleyhq/parley/gen/go/parley/v1"
)

// recorder is an http.ResponseWriter that records the status and the body of an answer.
type recorder struct {
	discardWriter

	status int
	body   bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// partial makes the server execute the first f.Items messages of a SendMessages, and adds error
// results for the others.
func (n *node) partial(w http.ResponseWriter, r *http.Request, f *fault) error {
	contentType := r.Header.Get("Content-Type")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	req := new(parleyv1.SendMessagesRequest)
	if err := unmarshal(contentType, body, req); err != nil {
		return err
	}
	rest := len(req.GetMessages()) - f.Items
	if f.Items < 1 || rest < 1 {
		return errors.New("not so many items")
	}
	req.Messages = req.GetMessages()[:f.Items]
	if body, err = marshal(contentType, req); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	kept := &recorder{discardWriter: discardWriter{header: make(http.Header)}, status: http.StatusOK}
	n.proxy.ServeHTTP(kept, r)
	res := new(parleyv1.SendMessagesResponse)
	if err := unmarshal(contentType, kept.body.Bytes(), res); err != nil || kept.status != http.StatusOK {
		return errors.Join(err, errors.New("the server refused the batch"))
	}
	for i := range rest {
		e := f.Error
		if i > 0 {
			e = faultyError{Code: "aborted", Reason: "BATCH_ABORTED"}
		}
		res.Results = append(res.Results, &parleyv1.SendResult{Result: &parleyv1.SendResult_Error{Error: e.toItem()}})
	}
	if body, err = marshal(contentType, res); err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	_, err = w.Write(body)
	return err
}

// toItem returns the error as that of one item of a batch.
func (e *faultyError) toItem() *parleyv1.ItemError {
	err := e.toConnect()
	// connect.Code and StatusCode both have the numbers of gRPC.
	item := &parleyv1.ItemError{Code: parleyv1.StatusCode(err.Code()), Message: "a fault of the scenario"}
	for _, d := range err.Details() {
		v, err := d.Value()
		if detail, ok := v.(*parleyv1.ErrorDetail); ok && err == nil {
			item.Detail = detail
		}
	}
	return item
}
