// Package document reads the documents of the repository, for the tests that run their commands and apply their manifests.
package document

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Block is a fenced code block of a document.
type Block struct {
	// File is the path of the document from the root of the repository, and Line the number of the first line of the block.
	File string
	Line int
	// Language is what follows the opening fence, such as sh or yaml.
	Language string
	Text     string
}

// String returns the place of the block.
func (b *Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Files returns the paths of README.md and of all documents below docs, from the root of the repository.
func Files(root string) ([]string, error) {
	files := []string{"README.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// Blocks returns the code blocks of all documents.
func Blocks(root string) ([]Block, error) {
	files, err := Files(root)
	if err != nil {
		return nil, err
	}
	var all []Block
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(root, file)) // #nosec G304 -- a file of the repository
		if err != nil {
			return nil, err
		}
		all = append(all, blocksOf(file, string(content))...)
	}
	return all, nil
}

// blocksOf returns the code blocks of a document. A block in a list is indented with its fences.
func blocksOf(file, content string) []Block {
	const fence = "```"
	var all []Block
	var lines []string
	indent, isOpen := "", false
	for i, line := range strings.Split(content, "\n") {
		text := strings.TrimLeft(line, " ")
		switch isFence := strings.HasPrefix(text, fence); {
		case isFence && !isOpen:
			isOpen, indent, lines = true, line[:len(line)-len(text)], nil
			all = append(all, Block{File: file, Line: i + 2, Language: strings.TrimPrefix(text, fence)})
		case isFence:
			isOpen = false
			all[len(all)-1].Text = strings.Join(lines, "\n") + "\n"
		case isOpen:
			lines = append(lines, strings.TrimPrefix(line, indent))
		}
	}
	return all
}

// Commands returns the commands of a block, without comments. A command that continues on the next line is one.
func (b *Block) Commands() []string {
	var all []string
	isContinued := false
	for line := range strings.Lines(b.Text) {
		command, _, _ := strings.Cut(" "+strings.TrimSpace(line), " #")
		command, continues := strings.CutSuffix(strings.TrimSpace(command), `\`)
		switch command = strings.TrimSpace(command); {
		case isContinued:
			all[len(all)-1] += " " + command
		case command != "":
			all = append(all, command)
		}
		isContinued = continues
	}
	return all
}

// Objects returns the YAML documents of a block.
func (b *Block) Objects() []string { return strings.Split(b.Text, "\n---\n") }
