// Checks WeKnora's own Go client against the routes below /weknora/: decoding, paging, streaming and stopping.
//
// Reads an address, a key and the names of the rows that test_go_client.py stored, prints a line for each check that
// passes, and ends at the first that fails. The client is not part of this project: see test_go_client.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/Tencent/WeKnora/client"
)

var ctx = context.Background()

// Stored names the rows to read.
type Stored struct {
	URL      string
	Key      string
	Paging   string   // a session with 45 messages, some of one time
	Contents []string // their contents, in reading order
	Trace    string   // a session with a question and an answer with everything in it
	Answer   string   // the id of that answer
	Running  string   // a session with an unfinished run made of events
	Run      string   // the id of its message
	Imported string   // a session with one answer that has no events
	Told     string   // the id of that answer
}

func check(name string, holds bool, found ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "%s: %+v\n", name, found)
		os.Exit(1)
	}
	fmt.Println(name)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var stored Stored
	must(json.NewDecoder(os.Stdin).Decode(&stored))
	api := client.NewClient(stored.URL, client.WithAPIKey(stored.Key))
	page(api, stored)
	read(api, stored)
	sessions(api, stored)
	follow(api, stored)
	fail(api, stored)
	// Last, because it deletes.
	remove(api, stored)
}

// requirement 000-28, 000-29, 000-30, 000-34
func page(api *client.Client, stored Stored) {
	recent, err := api.GetRecentMessages(ctx, stored.Paging, 20)
	must(err)
	check("the newest page is oldest first", recent[len(recent)-1].Content == stored.Contents[44], recent)
	var read []string
	seen := map[string]bool{}
	var before *time.Time
	for pages := 0; ; pages++ {
		if pages > 10 {
			check("the way ends", false, pages)
		}
		found, err := api.LoadMessages(ctx, stored.Paging, 20, before)
		must(err)
		if len(found) == 0 {
			break
		}
		var contents []string
		for _, message := range found {
			check1(!seen[message.ID], "twice", message)
			seen[message.ID] = true
			contents = append(contents, message.Content)
		}
		read = append(contents, read...)
		before = &found[0].CreatedAt
	}
	check("paging by the first message gets each once", reflect.DeepEqual(read, stored.Contents), read)
	earlier, err := api.GetMessagesBefore(ctx, stored.Paging, *before, 20)
	must(err)
	check("before the first there is nothing", len(earlier) == 0, earlier)
	unset, err := api.GetMessagesBefore(ctx, stored.Paging, time.Time{}, 20)
	must(err)
	check("a time that was not set is the newest page", len(unset) == len(recent), len(unset))
}

func check1(holds bool, found ...any) {
	if !holds {
		check("a check within another", false, found...)
	}
}

func read(api *client.Client, stored Stored) {
	found, err := api.LoadMessages(ctx, stored.Trace, 20, nil)
	must(err)
	check("a whole trace is decoded", len(found) == 2 && found[1].ID == stored.Answer, found)
	answer := found[1]
	call := answer.AgentSteps[0].ToolCalls[0]
	check("arguments and results are objects", call.Args["city"] == "上海" && call.Result.Data["temp_c"] == 31.0, call)
	check("a duration is a whole number", call.Duration == 40, call.Duration)
	failed := answer.AgentSteps[0].ToolCalls[1]
	check("a failed call says why", !failed.Result.Success && failed.Result.Error == "unknown city", failed)
	reference := answer.KnowledgeReferences[0]
	check("a reference is decoded", reference.Metadata["page"] == "7" && int(reference.MatchType) == 4, reference)
	check("times are in UTC", answer.CreatedAt.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), answer.CreatedAt)
}

func sessions(api *client.Client, stored Stored) {
	made, err := api.CreateSession(ctx, &client.CreateSessionRequest{Title: "", Description: "Of today"})
	must(err)
	got, err := api.GetSession(ctx, made.ID)
	must(err)
	check("a session is made and read", *got == *made && made.TenantID > 0, made, got)
	title, err := api.GenerateTitle(ctx, made.ID, &client.GenerateTitleRequest{
		Messages: []client.Message{{Role: "user", Content: "What is the weather?"}},
	})
	must(err)
	check("a title is made of messages with times that are not set", title == "What is the weather?", title)
	changed, err := api.UpdateSession(ctx, made.ID, &client.CreateSessionRequest{Title: "Rain"})
	must(err)
	check("a session is changed", changed.Title == "Rain" && changed.Description == "", changed)
	list, total, err := api.GetSessionsByTenant(ctx, 1, 2)
	must(err)
	check("sessions are listed", len(list) == 2 && total == 5 && list[0].ID == made.ID, list, total)
	other, err := api.CreateSession(ctx, &client.CreateSessionRequest{Title: "Other"})
	must(err)
	must(api.DeleteSession(ctx, other.ID))
	must(api.BatchDeleteSessions(ctx, []string{made.ID}))
	_, total, err = api.GetSessionsByTenant(ctx, 1, 2)
	must(err)
	check("sessions are deleted", total == 4, total)
}

func follow(api *client.Client, stored Stored) {
	var kinds []string
	heard := func(frame *client.StreamResponse) error {
		kinds = append(kinds, string(frame.ResponseType))
		if frame.ResponseType == client.ResponseTypeToolCall {
			// A running answer is stopped, and the stream says so.
			return api.StopSession(ctx, stored.Running, stored.Run)
		}
		return nil
	}
	must(api.ContinueStream(ctx, stored.Running, stored.Run, heard))
	wanted := []string{"agent_query", "thinking", "tool_call", "stop"}
	check("a running answer is followed and stopped", reflect.DeepEqual(kinds, wanted), kinds)
	kinds = nil
	var last client.StreamResponse
	must(api.ContinueStream(ctx, stored.Imported, stored.Told, func(frame *client.StreamResponse) error {
		kinds, last = append(kinds, string(frame.ResponseType)), *frame
		return nil
	}))
	wanted = []string{"agent_query", "thinking", "tool_call", "tool_result", "answer", "complete"}
	check("an answer without events is told by its rows", reflect.DeepEqual(kinds, wanted) && last.Done, kinds)
}

func fail(api *client.Client, stored Stored) {
	_, err := api.GetSession(ctx, "unknown")
	var answered *client.APIError
	check("the code of an error is found", errors.As(err, &answered) && answered.StatusCode == 404 && answered.Code == 1003, err)
	_, err = client.NewClient(stored.URL, client.WithAPIKey("ts_wrong")).GetSession(ctx, stored.Trace)
	check("a wrong key is said", errors.As(err, &answered) && answered.StatusCode == 401, err)
	check("in plain words", strings.Contains(answered.Body, `{"error":`) && strings.Contains(answered.Body, "Unauthorized: "), answered.Body)
	err = api.ContinueStream(ctx, stored.Trace, "unknown", func(*client.StreamResponse) error { return nil })
	check("what cannot be followed is not found", errors.As(err, &answered) && answered.StatusCode == 404, err)
}

// requirement 000-35, 000-41
func remove(api *client.Client, stored Stored) {
	must(api.DeleteMessage(ctx, stored.Trace, stored.Answer))
	left, err := api.GetRecentMessages(ctx, stored.Trace, 20)
	must(err)
	check("a message is deleted", len(left) == 1, left)
	check("and only once", api.DeleteMessage(ctx, stored.Trace, stored.Answer) != nil)
	bearer := client.NewClient(stored.URL, client.WithBearerToken(stored.Key))
	_, err = bearer.GetSession(ctx, stored.Trace)
	check("a key is taken as a bearer token too", err == nil, err)
}
