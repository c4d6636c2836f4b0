package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func newToolCommand() *cobra.Command {
	var endUser string
	cmd := &cobra.Command{
		Use:   "tool CHAT TOOL [KEY=VALUE...]",
		Short: "Call a tool in a chat's machine",
		Long: `Call a tool in a chat's machine and print its answer, one JSON object. The chat is
made if it is not there; its first call starts the machine.

A VALUE is taken as JSON where it is JSON (timeout_ms=5000, x='[1,2]'), else as
text; command, path, content and expert are always text. KEY=@FILE takes the
content of a file (- is standard input); content=@FILE may hold any bytes.

  berth tool hello bash command='python3 --version'
  berth tool hello write_file path=a.txt content=@a.txt
` + clientHelp,
		Args: usageArgs(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := toolArgs(args[2:], cmd.InOrStdin())
			if err != nil {
				return err
			}
			c, err := newClient()
			if err != nil {
				return err
			}
			return c.tool(cmd.Context(), args[0], args[1], endUser, values, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&endUser, "end-user", "", "whose chat it is; needed with an API key when the chat is new")
	return cmd
}

// tool makes the chat if it is new, calls the tool and prints its answer.
func (c *client) tool(ctx context.Context, chat, tool, endUser string, values map[string]any, out io.Writer) error {
	path := "/v1/chats/" + url.PathEscape(chat)
	var answer json.RawMessage
	call := func() error {
		return c.call(ctx, http.MethodPost, path+"/tools/"+url.PathEscape(tool), values, &answer)
	}
	err := call()
	var said *problem
	if errors.As(err, &said) && said.status == http.StatusNotFound {
		// Either the chat or the tool is not there; making the chat tells which.
		settings := map[string]string{}
		if endUser != "" {
			settings["end_user"] = endUser
		}
		if err := c.call(ctx, http.MethodPut, path, settings, nil); err != nil {
			return fmt.Errorf("cannot make chat %q: %w", chat, err)
		}
		err = call()
	}
	if err != nil {
		return fmt.Errorf("cannot call %s in chat %q: %w", tool, chat, err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, answer, "", "  "); err != nil {
		return fmt.Errorf("cannot read the tool's answer: %w", err)
	}
	pretty.WriteByte('\n')
	_, err = pretty.WriteTo(out)
	return err
}

// textKeys are arguments that are text even where they look like JSON: "true" is
// a command.
var textKeys = [...]string{"command", "path", "content", "expert"}

// toolArgs reads KEY=VALUE arguments.
func toolArgs(args []string, stdin io.Reader) (map[string]any, error) {
	values := make(map[string]any, len(args))
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, &usageError{fmt.Errorf("cannot use argument %q: it is not KEY=VALUE", arg)}
		}
		if name, ok := strings.CutPrefix(value, "@"); ok {
			content, err := readArg(name, stdin)
			if err != nil {
				return nil, err
			}
			if key == "content" && !utf8.Valid(content) {
				values["content_base64"] = base64.StdEncoding.EncodeToString(content)
				continue
			}
			values[key] = string(content)
			continue
		}
		values[key] = value
		var decoded any
		if !slices.Contains(textKeys[:], key) && json.Unmarshal([]byte(value), &decoded) == nil {
			values[key] = json.RawMessage(value)
		}
	}
	return values, nil
}

// readArg reads a file, or standard input for "-".
func readArg(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		content, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("cannot read standard input: %w", err)
		}
		return content, nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read argument: %w", err)
	}
	return content, nil
}
