package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Other is another program's measurement of a library.
type Other struct {
	Library
	Collective Collective `json:"collective"`
	Ranks      int        `json:"ranks"`
	Bytes      int        `json:"bytes"`
}

// ReadOthers reads a sequence of JSON objects.
func ReadOthers(r io.Reader) (all []Other, err error) {
	in := json.NewDecoder(r)
	in.DisallowUnknownFields()
	for {
		var o Other
		switch err := in.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("object %d: %w", len(all)+1, err)
		case o.Name == "" || o.Collective == "" || o.Ranks == 0 || o.Bytes == 0:
			return nil, fmt.Errorf("object %d lacks a library, a collective, ranks or bytes", len(all)+1)
		}
		all = append(all, o)
	}
}

// Join adds the measurements of other libraries to the results for the same collective, ranks and size.
func Join(results []GPUResult, others []Other) {
	for i := range results {
		r := &results[i]
		for _, o := range others {
			if o.Collective == r.Collective && o.Ranks == r.Ranks && o.Bytes == r.Bytes {
				r.Beside = append(r.Beside, o.Library)
			}
		}
	}
}
