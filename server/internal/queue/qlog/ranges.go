package qlog

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatRanges writes ordinals, which must ascend strictly, as an operator reads them:
// "17,30-44". It returns an empty string for none.
func FormatRanges(ordinals []int64) string {
	var b strings.Builder
	for i := 0; i < len(ordinals); {
		j := i
		for j+1 < len(ordinals) && ordinals[j+1] == ordinals[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(ordinals[i], 10))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.FormatInt(ordinals[j], 10))
		}
		i = j + 1
	}
	return b.String()
}

// ParseRanges parses what FormatRanges returns for one chunk. It fails if the ordinals do not ascend
// or do not belong to the chunk.
func ParseRanges(chunk int64, s string) ([]int64, error) {
	if s == "" {
		return nil, nil
	}
	var ordinals []int64
	low, high := chunk*ChunkOrdinals, (chunk+1)*ChunkOrdinals
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseInt(from, 10, 64)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseInt(to, 10, 64)
		}
		if err != nil || first < low || last < first || last >= high {
			return nil, fmt.Errorf("chunk %d of open entries: %q is not a range of it", chunk, part)
		}
		low = last + 1
		for o := first; o <= last; o++ {
			ordinals = append(ordinals, o)
		}
	}
	return ordinals, nil
}
