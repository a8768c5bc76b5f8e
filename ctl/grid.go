package ctl

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"
)

// Columns are separated by two blanks. A column that is wrapped keeps at least minColumn, and room for words of
// maxWord: keys of objects are shorter, and longer words are texts of other programs.
const (
	columnGap = 2
	minColumn = 16
	maxWord   = 48
)

// wide is the header of a column that only --wide shows.
type wide string

// spare is the header of a column that is left out on a terminal if the table does not fit otherwise.
type spare string

// grid is a table without borders.
type grid struct {
	header []any
	rows   [][]any
}

func newGrid(header ...any) *grid { return &grid{header: header} }

func (g *grid) row(cells ...any) { g.rows = append(g.rows, cells) }

// printGrid prints a table, or the text empty if the table has no rows. Unless all columns of any width are wanted, it
// leaves out those for --wide. On a terminal it also wraps headers and columns with phrases, and then leaves out spare
// columns, until the table fits. Names are never cut: they are to be copied. Without a terminal each row is a line, for
// grep.
func (p *printer) printGrid(g *grid, empty string) {
	if len(g.rows) == 0 {
		p.printf("%s\n", empty)
		return
	}
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = strings.Repeat(" ", columnGap)
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	shown := g.shown(p.wide)
	if !p.wide && p.width > 0 {
		var configs []table.ColumnConfig
		shown, configs = g.fitted(shown, p.width)
		w.SetColumnConfigs(configs)
	}
	if len(g.header) > 0 {
		w.AppendHeader(pick(g.header, shown))
	}
	for _, cells := range g.rows {
		w.AppendRow(pick(cells, shown))
	}
	p.printf("%s\n", w.Render())
}

// shown returns the indices of the columns to show. A table without a header shows all.
func (g *grid) shown(all bool) (columns []int) {
	for n := range g.rows[0] {
		if all || n >= len(g.header) || !isWide(g.header[n]) {
			columns = append(columns, n)
		}
	}
	return columns
}

func isWide(title any) bool {
	_, is := title.(wide)
	return is
}

func pick(cells []any, columns []int) (picked table.Row) {
	for _, n := range columns {
		switch title := cells[n].(type) {
		case wide:
			picked = append(picked, string(title))
		case spare:
			picked = append(picked, string(title))
		default:
			picked = append(picked, title)
		}
	}
	return picked
}

// column is a column of a table while its width is chosen.
type column struct {
	width   int
	least   int  // as wide as its longest word, and at least minColumn if cells are wrapped: a name is never cut
	phrases bool // the header or a cell has a blank: it may be wrapped
}

// fitted chooses the columns, and limits their widths, so that the table fits width, if it can.
func (g *grid) fitted(shown []int, width int) (columns []int, configs []table.ColumnConfig) {
	for {
		configs, fits := g.wrapped(shown, width)
		last := -1
		for i, n := range shown {
			if n < len(g.header) && isSpare(g.header[n]) {
				last = i
			}
		}
		if fits || last < 0 {
			return shown, configs
		}
		shown = slices.Delete(slices.Clone(shown), last, last+1)
	}
}

func isSpare(title any) bool {
	_, is := title.(spare)
	return is
}

// wrapped limits the widths of columns with phrases, the widest first, until the table fits width, if it can.
func (g *grid) wrapped(shown []int, width int) (configs []table.ColumnConfig, fits bool) {
	columns, total := g.measure(shown)
	limits := map[int]int{}
	for total > width {
		widest := -1
		for n, c := range columns {
			if c.phrases && c.width > c.least && (widest < 0 || c.width > columns[widest].width) {
				widest = n
			}
		}
		if widest < 0 {
			break
		}
		second := minColumn
		for n, c := range columns {
			if n != widest && c.phrases {
				second = max(second, c.width)
			}
		}
		target := max(min(second, columns[widest].width-1), columns[widest].width-(total-width), columns[widest].least)
		total -= columns[widest].width - target
		columns[widest].width = target
		limits[widest] = target
	}
	for n, limit := range limits {
		configs = append(configs, table.ColumnConfig{Number: n + 1, WidthMax: limit, WidthMaxEnforcer: wrap})
	}
	return configs, total <= width
}

// wrap wraps a cell between words. The lines have no blanks at their ends, which would count in right-aligned columns.
func wrap(cell string, width int) string {
	lines := strings.Split(text.WrapSoft(cell, width), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

func (g *grid) measure(shown []int) (columns []column, total int) {
	for _, n := range shown {
		c := g.column(n)
		columns = append(columns, c)
		total += c.width + columnGap
	}
	return columns, total - columnGap
}

func (g *grid) column(n int) (c column) {
	if n < len(g.header) {
		title := fmt.Sprint(g.header[n])
		c = column{width: len(title), phrases: strings.Contains(title, " ")}
		for word := range strings.FieldsSeq(title) {
			c.least = max(c.least, len(word))
		}
	}
	longest := 0 // word of a cell
	widest := 0  // cell
	hasPhrases := false
	for _, cells := range g.rows {
		cell := fmt.Sprint(cells[n])
		widest = max(widest, text.LongestLineLen(cell))
		hasPhrases = hasPhrases || strings.Contains(cell, " ")
		for word := range strings.FieldsSeq(cell) {
			longest = max(longest, min(text.StringWidthWithoutEscSequences(word), maxWord))
		}
	}
	c.width = max(c.width, widest)
	c.phrases = c.phrases || hasPhrases
	if hasPhrases {
		c.least = max(c.least, longest, minColumn)
	} else {
		c.least = max(c.least, widest)
	}
	return c
}

// paragraph prints a line of words. On a terminal it continues on indented lines, unless all of it is wanted.
func (p *printer) paragraph(line string) {
	const indent = "  "
	for !p.wide && p.width > 0 && text.StringWidthWithoutEscSequences(line) > p.width {
		at := -1
		for i := range line {
			fits := text.StringWidthWithoutEscSequences(line[:i]) <= p.width
			if line[i] == ' ' && strings.TrimSpace(line[:i]) != "" && (fits || at < 0) {
				at = i
			}
		}
		if at < 0 {
			break // one long name
		}
		p.printf("%s\n", strings.TrimRight(line[:at], " "))
		line = indent + strings.TrimLeft(line[at:], " ")
	}
	p.printf("%s\n", line)
}

// widthOf returns the width of a terminal; 0 without one.
func widthOf(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			return int(size.Col)
		}
	}
	return 0
}
