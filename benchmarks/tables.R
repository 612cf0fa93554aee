# Tables for table_nets.py, of R's packages mlbench and kernlab: Rscript benchmarks/tables.R FOLDER
library(mlbench)
library(kernlab)

targets <- c(
  BreastCancer = "Class", DNA = "Class", Glass = "Type", HouseVotes84 = "Class",
  Ionosphere = "Class", LetterRecognition = "lettr", PimaIndiansDiabetes2 = "diabetes",
  Satellite = "classes", Shuttle = "Class", Sonar = "Class", Soybean = "Class",
  Vehicle = "Class", Vowel = "Class", Zoo = "type", income = "INCOME", musk = "Class",
  promotergene = "Class", spam = "type", ticdata = "CARAVAN"
)
folder <- commandArgs(trailingOnly = TRUE)[1]
dir.create(folder, showWarnings = FALSE, recursive = TRUE)
for (name in names(targets)) {
  data(list = name)
  table <- get(name)
  labels <- as.character(table[[targets[[name]]]])
  table <- table[, !names(table) %in% c("Id", targets[[name]])]
  table$target <- labels
  write.csv(table[!is.na(labels), ], file.path(folder, paste0(name, ".csv")),
            row.names = FALSE, na = "")
}
