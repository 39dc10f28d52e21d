package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes aligned columns, for humans.
type table struct {
	to     io.Writer
	text   bytes.Buffer
	tabs   *tabwriter.Writer
	indent string
}

func newTable(w io.Writer, indent string, header ...string) *table {
	t := &table{to: w, indent: indent}
	t.tabs = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	cells := make([]any, len(header))
	for i, h := range header {
		cells[i] = h
	}
	t.row(cells...)
	return t
}

// row adds a row. An empty cell is shown as a dash, unless it is the last.
func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = oneLine(fmt.Sprint(c))
		if texts[i] == "" && i < len(cells)-1 {
			texts[i] = "-"
		}
	}
	_, _ = io.WriteString(t.tabs, t.indent+strings.Join(texts, "\t")+"\n")
}

// flush writes the table.
func (t *table) flush() error {
	_ = t.tabs.Flush() // to memory
	for line := range strings.Lines(t.text.String()) {
		if _, err := io.WriteString(t.to, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// approxDuration formats a duration, rounded for humans.
func approxDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return formatDuration(d.Round(time.Second))
	case d < 2*day:
		return formatDuration(d.Round(time.Minute))
	default:
		return fmt.Sprintf("%.1fd", d.Hours()/24)
	}
}

// count formats a number with its noun.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clip shortens a text to at most limit characters.
func clip(text string, limit int) string {
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws numbers as bars. The highest number has the highest bar.
func sparkline(values []int64) string {
	top := int64(1)
	for _, v := range values {
		top = max(top, v)
	}
	drawn := make([]rune, len(values))
	for i, v := range values {
		drawn[i] = bars[max(v, 0)*int64(len(bars)-1)/top]
	}
	return string(drawn)
}
