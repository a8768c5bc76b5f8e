package ctl

import (
	"fmt"
	"io"
	"os"
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

// grid is a table without borders.
type grid struct {
	header []any
	rows   [][]any
}

func newGrid(header ...any) *grid { return &grid{header: header} }

func (g *grid) row(cells ...any) { g.rows = append(g.rows, cells) }

// printGrid prints a table, or the text empty if the table has no rows. Unless all columns of any width are wanted, it
// leaves out those for --wide. On a terminal it also wraps columns with phrases until the table fits. Names are never
// cut: they are to be copied. Without a terminal each row is a line, for grep.
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
	if len(g.header) > 0 {
		w.AppendHeader(pick(g.header, shown))
	}
	for _, cells := range g.rows {
		w.AppendRow(pick(cells, shown))
	}
	if !p.wide && p.width > 0 {
		w.SetColumnConfigs(g.wrapped(shown, p.width))
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
		if title, isWide := cells[n].(wide); isWide {
			cells[n] = string(title)
		}
		picked = append(picked, cells[n])
	}
	return picked
}

// column is a column of a table while its width is chosen.
type column struct {
	width   int
	least   int  // at least minColumn, and as wide as its longest word: a name is never cut
	phrases bool // a cell has a blank: it may be wrapped
}

// wrapped limits the widths of columns with phrases, the widest first, until the table fits width, if it can.
func (g *grid) wrapped(shown []int, width int) (configs []table.ColumnConfig) {
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
		configs = append(configs, table.ColumnConfig{Number: n + 1, WidthMax: limit, WidthMaxEnforcer: text.WrapSoft})
	}
	return configs
}

func (g *grid) measure(shown []int) (columns []column, total int) {
	for _, n := range shown {
		c := column{least: minColumn}
		if n < len(g.header) {
			c.width = len(fmt.Sprint(g.header[n]))
		}
		for _, cells := range g.rows {
			cell := fmt.Sprint(cells[n])
			c.width = max(c.width, text.LongestLineLen(cell))
			c.phrases = c.phrases || strings.Contains(cell, " ")
			for word := range strings.FieldsSeq(cell) {
				c.least = max(c.least, min(text.StringWidthWithoutEscSequences(word), maxWord))
			}
		}
		columns = append(columns, c)
		total += c.width + columnGap
	}
	return columns, total - columnGap
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
