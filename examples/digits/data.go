package main

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for the data
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
)

//go:embed data/digits.csv.gz
var archive []byte

const (
	pixels  = 64 // 8 × 8
	classes = 10
	darkest = 16 // the darkest value of a pixel in the file
)

type sample struct {
	pixels [pixels]float32 // from 0 to 1, row by row
	digit  int
}

// load returns the samples to train with, and a fifth that is held out to test with. They are the same on every call.
func load() (train, test []sample, err error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, nil, fmt.Errorf("unpack the digits: %w", err)
	}
	all, err := parse(unpacked)
	if err != nil {
		return nil, nil, fmt.Errorf("read the digits: %w", err)
	}
	// The file is ordered by writer. It is shuffled so that both parts have digits of all writers.
	rand.New(rand.NewPCG(1998, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fifth := len(all) / 5
	return all[fifth:], all[:fifth], nil
}

func parse(r io.Reader) ([]sample, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = pixels + 1
	lines.ReuseRecord = true
	var samples []sample
	for {
		fields, err := lines.Read()
		if err == io.EOF {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		var s sample
		for i, field := range fields {
			limit := darkest
			if i == pixels {
				limit = classes - 1
			}
			n, err := strconv.Atoi(field)
			if err != nil || n < 0 || n > limit {
				line, column := lines.FieldPos(i)
				return nil, fmt.Errorf("line %d, column %d: %q is not a number from 0 to %d",
					line, column, field, limit)
			}
			if i < pixels {
				s.pixels[i] = float32(n) / darkest
			} else {
				s.digit = n
			}
		}
		samples = append(samples, s)
	}
}
