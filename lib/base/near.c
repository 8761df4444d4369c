#include "base/near.h"

/* The optimal string alignment distance: Damerau's, without edits between swapped letters. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
        size_t rows[3][NEAR_WORD_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];

        for (size_t j = 0; j <= m; j++)
                last[j] = j;
        for (size_t i = 1; i <= n; i++) {
                size_t *oldest = before;

                row[0] = i;
                for (size_t j = 1; j <= m; j++) {
                        row[j] = last[j - 1] + (a[i - 1] != b[j - 1]);
                        row[j] = min_of(row[j], last[j] + 1);
                        row[j] = min_of(row[j], row[j - 1] + 1);
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                                row[j] = min_of(row[j], before[j - 2] + 1);
                }
                before = last;
                last = row;
                row = oldest;
        }
        return last[m];
}

void near_try(struct near *n, const char *typed, size_t len, const char *word)
{
        size_t m = strlen(word), d;

        if (len > NEAR_WORD_MAX || m > NEAR_WORD_MAX)
                return;
        d = distance(typed, len, word, m);
        if (d <= 1 + len / 5 && d < len && (!n->word || d < n->distance))
                *n = (struct near){word, d};
}
